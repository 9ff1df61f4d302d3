// Folds on a GPU against the host's (host_fold.hpp), bit for bit: every type and operation, alignments,
// counts, numbers of inputs and outputs, outputs that are inputs, and that nothing beside them changes.
// fold_check LIBCUDA [--short]; the driver may be CUDA's or its double. A program of its own, so that it runs
// where there is nothing but CUDA and a compiler, and under CUDA's sanitizer.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "cuda_memory.hpp"
#include "fold_data.hpp"
#include "gpu/kernels.hpp"
#include "gpu/kernels/arguments.hpp"
#include "host_fold.hpp"
#include "loaded_driver.hpp"

namespace heddle::test {
namespace {

constexpr unsigned kMany = 8;  // inputs, and outputs
constexpr std::size_t kMargin = 64;
constexpr std::uint32_t kPairs = 65536;  // of elements of 8 bits, and elements of 16
constexpr std::uint8_t kMark = 0xA5;

// Where vectors begin, modulo 16.
enum class Alignment { aligned, congruent, apart, congruent_bytes, bytes };
constexpr unsigned kAlignments = 5;
// What the result is written to.
enum class Outputs { one, first_input, last_input_and_one, all_inputs, eight };
constexpr unsigned kOutputs = 5;

struct Case {
  DType type;
  Op op;
  std::size_t count;
  unsigned n_inputs;
  Alignment alignment;
  Outputs outputs;
};

class Checker {
 public:
  explicit Checker(const char* path)
      : cuda_(path), driver_(loaded_driver(path)), context_(cuda_.primary(0)), kernels_(driver_) {
    cuda_.set_current(context_);
    driver_.DeviceGetAttribute(&multiprocessors_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
    char name[256] = "";
    driver_.DeviceGetName(name, sizeof name, 0);
    std::printf("folds on %s, %d multiprocessors, against the host's (%s)\n", name, multiprocessors_,
                host_fold_name());
  }

  void prepare(DType type, std::size_t most) {
    for (unsigned k = 0; k < kMany; ++k) {
      data_[k][0] = calm_elements(type, most, random_);
      data_[k][1] = wild_elements(type, most, random_);
    }
  }
  void prepare_pairs(DType type, bool all_numbers);
  bool check(const Case& c);
  std::size_t multiprocessors() const { return static_cast<std::size_t>(multiprocessors_); }
  std::size_t cases() const { return cases_; }

 private:
  void lay_out(const Case& c);
  bool run(const Case& c);
  bool compare(const Case& c);

  TestDriver cuda_;
  gpu::Driver driver_;
  CUcontext context_;
  gpu::Kernels kernels_;
  int multiprocessors_ = 0;
  std::mt19937_64 random_{7};
  std::array<std::array<Bytes, 2>, kMany> data_;
  std::optional<TestMemory> memory_;
  std::size_t room_ = 0;
  std::size_t cases_ = 0;
  // Of the case at hand: the buffers' places in the memory, what it should hold, and does.
  std::vector<std::size_t> inputs_;
  std::vector<std::size_t> outputs_;
  Bytes want_;
  Bytes got_;
};

// In the first two inputs: of elements of 8 bits every one with every other, of 16 bits every one and for
// each of them another one. With all_numbers 0 stands in place of what is none, since that would hide how the
// numbers beside it are folded.
void Checker::prepare_pairs(DType type, bool all_numbers) {
  const bool is_byte = dtype_size(type) == 1;
  const std::uint32_t exponent = is_byte ? 0x7CU : 0x7C00U;
  const auto is_number = [&](std::uint32_t code) {
    return type == DType::e4m3 ? (code & 0x7FU) != 0x7FU : (code & exponent) != exponent;
  };
  for (unsigned which = 0; which < 2; ++which) {
    Bytes bytes;
    for (std::uint32_t i = 0; i < kPairs; ++i) {
      std::uint32_t code = is_byte ? i >> 8 * which & 0xFFU : (which == 0 ? i : i * 40503U & 0xFFFFU);
      if (all_numbers && !is_number(code)) code = 0;
      bytes.push_back(static_cast<std::uint8_t>(code));
      if (!is_byte) bytes.push_back(static_cast<std::uint8_t>(code >> 8));
    }
    for (unsigned kind = 0; kind < 2; ++kind) {
      for (unsigned k = which; k < kMany; k += 2)
        data_[k][kind] = bytes;
    }
  }
}

void Checker::lay_out(const Case& c) {
  const std::size_t size = dtype_size(c.type);
  const std::size_t bytes = c.count * size;
  const std::size_t slot = (bytes + 4 * kMargin) / 256 * 256 + 256;
  std::size_t used = 0;
  const auto place = [&] {
    const std::size_t k = used++;
    const std::size_t offsets[] = {0, 3 * size, (k % 5 + 1) * size, 5, 3 * k + 1};
    return k * slot + kMargin + offsets[static_cast<unsigned>(c.alignment)] % 64;
  };
  inputs_.clear();
  outputs_.clear();
  for (unsigned k = 0; k < c.n_inputs; ++k)
    inputs_.push_back(place());
  if (c.outputs == Outputs::first_input) outputs_.push_back(inputs_.front());
  if (c.outputs == Outputs::last_input_and_one) outputs_.push_back(inputs_.back());
  if (c.outputs == Outputs::all_inputs) outputs_ = inputs_;
  if (c.outputs == Outputs::one || c.outputs == Outputs::last_input_and_one) outputs_.push_back(place());
  if (c.outputs == Outputs::eight) std::generate_n(std::back_inserter(outputs_), kMany, place);
  want_.assign(used * slot, kMark);
  for (unsigned k = 0; k < c.n_inputs; ++k) {
    const Bytes& from = data_[(k + cases_) % kMany][cases_ % 2];
    for (std::size_t done = 0; done < bytes; done += from.size())
      std::memcpy(&want_[inputs_[k] + done], from.data(), std::min(from.size(), bytes - done));
  }
}

bool Checker::run(const Case& c) {
  if (want_.size() > room_) {
    room_ = want_.size();
    memory_.reset();
    memory_.emplace(cuda_, Memory::device, room_);
  }
  memory_->put(want_.data(), want_.size());
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (const std::size_t at : inputs_)
    inputs.push_back(memory_->as<char>() + at);
  for (const std::size_t at : outputs_)
    outputs.push_back(memory_->as<char>() + at);
  const Status status = kernels_.fold(gpu::default_stream(), c.type, c.op, inputs, outputs, c.count);
  if (!status.ok()) std::printf("%s\n", status.message().c_str());
  if (!status.ok()) return false;
  got_.resize(want_.size());
  memory_->get(got_.data(), got_.size());
  return true;
}

bool Checker::compare(const Case& c) {
  std::vector<const void*> inputs;
  for (const std::size_t at : inputs_)
    inputs.push_back(&want_[at]);
  Bytes result(c.count * dtype_size(c.type) + 1);
  host_fold(c.type, c.op, result.data(), inputs, c.count);
  const bool any_nan = part_of(c.type) != c.type && c.op == Op::prod;
  for (const std::size_t at : outputs_) {
    if (!same_elements(c.type, &got_[at], result.data(), c.count, any_nan)) return false;
    std::memcpy(&want_[at], &got_[at], c.count * dtype_size(c.type));
  }
  return want_ == got_;
}

bool Checker::check(const Case& c) {
  lay_out(c);
  const bool right = run(c) && compare(c);
  ++cases_;
  if (!right)
    std::printf("  wrong: %s of %s, %zu elements, %u inputs, alignment %d, outputs %d\n", op_name(c.op),
                dtype_name(c.type), c.count, c.n_inputs, static_cast<int>(c.alignment),
                static_cast<int>(c.outputs));
  return right;
}

// All combinations of a short list; the outputs take turns.
bool check_small(Checker& checker, DType type, Op op, bool brief) {
  const std::size_t all[] = {0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 127, 258, 1037};
  bool right = true;
  unsigned turn = 0;
  for (const std::size_t count : all) {
    if (brief && count % 16 > 1) continue;
    for (unsigned n = 1; n <= kMany; ++n) {
      if (brief && n > 3 && n < kMany) continue;
      for (unsigned a = 0; a < kAlignments && right; ++a, ++turn)
        right = checker.check({type, op, count, n, static_cast<Alignment>(a),
                               static_cast<Outputs>((turn + turn / kOutputs) % kOutputs)});
    }
  }
  return right;
}

// Whole tiles, vectors that are left over and single elements; `rounds`: more tiles than blocks.
bool check_large(Checker& checker, DType type, Op op, bool rounds) {
  const std::size_t tile = gpu::kernels::kTileVectors * sizeof(gpu::kernels::Vector);
  const std::size_t bytes = checker.multiprocessors() * tile * (rounds ? 20 : 1) + tile / 2 + 1000;
  const std::size_t count = bytes / dtype_size(type) | 1U;
  return checker.check({type, op, count, 2, Alignment::congruent, Outputs::first_input}) &&
         checker.check({type, op, count, 3, Alignment::aligned, Outputs::last_input_and_one}) &&
         checker.check({type, op, count, 2, Alignment::apart, Outputs::one});
}

// Of the types that are folded by words.
bool check_pairs(Checker& checker, DType type, Op op) {
  if (type != DType::f16 && type != DType::e4m3 && type != DType::e5m2) return true;
  bool right = true;
  for (const bool all_numbers : {false, true}) {
    checker.prepare_pairs(type, all_numbers);
    // Products of many leave the range of float.
    for (const unsigned inputs : {2U, kMany})
      right &= checker.check({type, op, kPairs, inputs, Alignment::aligned, Outputs::one});
  }
  return right;
}

// What there is a kernel for is what the host has one for, long double aside.
bool right_kernels(DType type, Op op) {
  const bool long_double = type == DType::f80 || type == DType::c80;
  const bool expected = is_valid(type, op) && !long_double;
  if (gpu::kernels::choose(type, op).has_value() == expected) return true;
  std::printf("  %s of %s: %s\n", op_name(op), dtype_name(type),
              expected ? "no kernel" : "a kernel that the host lacks");
  return false;
}

int check_all(Checker& checker, bool brief) {
  int wrong = 0;
  int pairs = 0;
  for (const DType type : kAllTypes) {
    std::string line;
    for (const Op op : kAllOps) {
      wrong += right_kernels(type, op) ? 0 : 1;
      if (!gpu::kernels::choose(type, op)) continue;
      ++pairs;
      checker.prepare(type, 1037);
      const bool rounds = op == Op::sum && (type == DType::f32 || type == DType::u8 || type == DType::f16);
      const bool right = check_small(checker, type, op, brief) && check_large(checker, type, op, false) &&
                         (!rounds || brief || check_large(checker, type, op, true)) &&
                         check_pairs(checker, type, op);
      wrong += right ? 0 : 1;
      line += std::string(" ") + op_name(op) + (right ? "" : " (WRONG)");
    }
    std::printf("%-20s%s\n", dtype_name(type), line.empty() ? " by the host" : line.c_str());
  }
  std::printf("%d pairs of type and operation, %zu folds: %s\n", pairs, checker.cases(),
              wrong == 0 ? "all with the host's bits" : "some are WRONG");
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  heddle::test::Checker checker(argv[1]);
  return heddle::test::check_all(checker, argc > 2 && std::strcmp(argv[2], "--short") == 0);
}
