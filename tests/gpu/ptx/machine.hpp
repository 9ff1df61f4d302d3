// Runs a kernel of a Program on the host, thread by thread, in an order that is drawn anew for each launch:
// blocks in any order and several at once, their threads for some instructions each. Where threads wait for
// each other (barriers, shuffles) they do, as the ISA has it since sm_70.
//
// It is stricter than a GPU. Errors are: memory outside of what the launch was given, addresses that are not
// aligned to the access; of a block's shared memory what is read before it was written, and what two threads
// use, one of them writing, with no barrier in between; lanes that do not all come where a warp meets; and
// waiting for ever. Not shown: the order of accesses to global memory, which is that of the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "program.hpp"
#include "shared_memory.hpp"

namespace heddle::test::ptx {

// Memory that a launch may use.
struct Range {
  std::uintptr_t begin;
  std::size_t bytes;
};

enum class State : std::uint8_t { ready, at_barrier, in_warp, ended };

class Machine;
struct Block;

struct Lane {
  const std::uint64_t* slots[2] = {};  // registers, and constants
  std::uint32_t at = 0;                // the next instruction
  State state = State::ready;
  unsigned thread = 0;
  Block* block = nullptr;

  const std::uint64_t& at_slot(std::uint32_t slot) const { return slots[slot >> 31][slot & ~kConstant]; }
  std::uint64_t& at_register(std::uint32_t slot) { return const_cast<std::uint64_t&>(slots[0][slot]); }
};

// One that runs.
struct Block {
  unsigned number = 0;
  std::vector<std::uint64_t> registers;  // of all threads
  std::vector<Lane> lanes;
  SharedMemory shared;
  std::vector<std::byte> local;  // of all threads
  unsigned waiting = 0;
  unsigned ended = 0;
  Machine* machine = nullptr;
};

struct Launch {
  const Kernel* kernel;
  std::span<const std::byte> arguments;
  std::vector<Range> memory;
  unsigned blocks;
  unsigned threads;  // of a block: whole warps
  std::uint64_t most_turns = std::uint64_t{1}
                             << 30;  // of threads, each of some instructions: more are without end
};

class Machine {
 public:
  // `blocks` is for those that run, and kept from launch to launch. `seed`: another one is another order of
  // threads.
  Machine(const Program& program, const Launch& launch, std::vector<Block>& blocks, std::uint64_t seed);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  // Error where the kernel does what it may not.
  void run();

  // For steps. `at` is an address of the space.
  std::byte* global(const Lane& lane, std::uint64_t at, std::size_t bytes);
  std::byte* shared(const Lane& lane, std::uint64_t at, std::size_t bytes, Access access);
  std::byte* local(const Lane& lane, std::uint64_t at, std::size_t bytes);
  const std::byte* parameter(const Lane& lane, std::uint64_t at, std::size_t bytes) const;

 private:
  void begin(Block& block, unsigned number);
  void run_some(Lane& lane);
  // False where the lane has to wait.
  bool do_one(Lane& lane, const Instruction& instruction);
  void arrive(Lane& lane);
  void release(Block& block);
  void meet_warp(Lane& lane, const Instruction& instruction);
  void shuffle(Block& block, unsigned first, const Instruction& instruction);
  void ballot(Block& block, unsigned first, std::uint32_t mask, const Instruction& instruction);
  Lane& next(std::span<Block* const> active);
  Lane* any_ready(std::span<Lane> lanes);
  void check(const Lane& lane, std::uint64_t at, std::size_t bytes, std::size_t size,
             const char* space) const;
  [[noreturn]] void fail(const Lane& lane, const std::string& what) const;
  [[noreturn]] void fail_waiting() const;

  const Program& program_;
  const Launch& launch_;
  std::mt19937_64 random_;
  std::span<Block> running_;
  std::vector<unsigned> to_run_;    // blocks that have not begun
  std::span<Lane> warp_;            // of the last turn
  std::uint64_t left_of_warp_ = 0;  // turns that it has in a row
  unsigned most_of_a_warp_ = 1;
  std::size_t last_range_ = 0;
};

}  // namespace heddle::test::ptx
