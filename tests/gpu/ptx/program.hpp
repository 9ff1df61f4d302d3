// PTX as a program for machine.hpp: what nvcc makes of the kernels, instruction by instruction. The language
// is that of NVIDIA's "Parallel Thread Execution ISA", as much of it as nvcc uses for them; what is unknown
// here is an error that names the line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::test::ptx {

// What a program, or what it does, is not allowed: the message has the place.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Lane;
struct Instruction;
// What an instruction does to one thread; where that goes on is not its business.
using Step = void (*)(Lane& lane, const Instruction& instruction);

enum class Kind : std::uint8_t {
  step,
  branch,
  end,
  pause,          // others go on
  block_barrier,  // bar.sync 0
  warp_barrier,   // these wait for the lanes that the mask, the last slot, names
  shuffle_up,
  shuffle_xor,
  shuffle_index,
  ballot,
};

inline constexpr unsigned kMostSlots = 6;
// Operands are slots: registers of the thread, or constants of the kernel, which have this bit.
inline constexpr std::uint32_t kConstant = 1U << 31;
inline constexpr std::uint32_t kAlways = kConstant;  // the first constant is 1

struct Instruction {
  Kind kind = Kind::step;
  bool unless = false;     // rather than if the guard is 1
  std::uint8_t width = 1;  // of vectors, which loads and stores have first
  std::uint32_t guard = kAlways;
  std::uint32_t slots[kMostSlots] = {};
  std::int64_t offset = 0;   // of an address
  std::uint32_t target = 0;  // of a branch: which instruction
  std::uint32_t line = 0;    // of the text
  Step step = nullptr;
};

struct Kernel {
  std::string name;
  std::vector<Instruction> code;
  std::vector<std::uint64_t> constants;
  std::size_t registers = 0;
  std::map<std::string, std::uint32_t, std::less<>> special;  // registers: %tid.x and its like
  std::size_t parameter_bytes = 0;
  std::size_t shared_bytes = 0;
  std::size_t local_bytes = 0;
};

class Program {
 public:
  // `name` is what errors call the text.
  Program(std::string_view text, std::string name);
  // Null where there is none of that name.
  const Kernel* find(std::string_view kernel) const;
  // "NAME:LINE: its text".
  std::string place(std::uint32_t line) const;

 private:
  std::string name_;
  std::vector<std::string> lines_;
  std::map<std::string, Kernel, std::less<>> kernels_;
};

}  // namespace heddle::test::ptx
