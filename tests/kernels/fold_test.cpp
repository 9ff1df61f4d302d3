// Every kernel against the reference: counts, numbers of inputs, alignments, aliasing, both outputs, on
// memory that ends at an inaccessible page; and that bits depend on operands alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <tuple>

#include "engine/kernels/kernels.hpp"
#include "guarded_buffer.hpp"
#include "reference.hpp"
#include "targets.hpp"

namespace heddle::test {
namespace {

constexpr unsigned kMaxInputs = 5;
constexpr std::size_t kMaxCount = 4099;
constexpr int kOwn = -1;   // the output has memory of its own
constexpr int kNone = -2;  // there is no second output

using Kernel = std::tuple<std::int64_t, DType, Op, Stores>;

class FoldTest : public testing::TestWithParam<Kernel> {
 protected:
  FoldTest() : target_(std::get<0>(GetParam())) {
    const std::size_t capacity = kMaxCount * dtype_size(type_);
    for (auto& buffer : buffers_)
      buffer = std::make_unique<GuardedBuffer>(capacity);
    for (auto& data : data_)
      data = random_elements(type_, kMaxCount, random_);
  }

  // One call. `alias` and `alias2` say which input each output is, or kOwn, or kNone.
  void check(std::size_t count, unsigned n_inputs, int alias, int alias2) {
    SCOPED_TRACE(testing::Message() << "count " << count << ", inputs " << n_inputs << ", out is " << alias
                                    << ", out2 is " << alias2 << ", call " << calls_);
    const std::size_t bytes = count * dtype_size(type_);
    std::vector<std::uint8_t*> placed;
    std::vector<const void*> inputs;
    std::vector<const std::uint8_t*> originals;
    for (unsigned k = 0; k < kMaxInputs + 2; ++k) {
      // All distances 0 to 7 in turn, and independent of each other; now and then the start is what is
      // guarded.
      const std::size_t gap = (calls_ >> (3 * k % 8)) * (2 * k + 1) % 8;
      placed.push_back(calls_ % 5 == 4 ? buffers_[k]->place_at_front(bytes) : buffers_[k]->place(bytes, gap));
    }
    ++calls_;
    for (unsigned k = 0; k < n_inputs; ++k) {
      std::copy_n(data_[k].data(), bytes, placed[k]);
      inputs.push_back(placed[k]);
      originals.push_back(data_[k].data());
    }
    std::uint8_t* out = alias == kOwn ? placed[kMaxInputs] : placed[static_cast<unsigned>(alias)];
    std::uint8_t* out2 = alias2 == kNone  ? nullptr
                         : alias2 == kOwn ? placed[kMaxInputs + 1]
                                          : placed[static_cast<unsigned>(alias2)];
    kernel_(out, out2, inputs.data(), n_inputs, count);

    const Bytes want = reference_fold(type_, op_, originals, count);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(same_element(type_, out, want.data(), i)) << "element " << i;
      if (out2 != nullptr) {
        ASSERT_TRUE(same_element(type_, out2, want.data(), i)) << "element " << i << " of out2";
      }
    }
    for (unsigned k = 0; k < n_inputs; ++k) {
      if (placed[k] == out || placed[k] == out2) continue;
      ASSERT_TRUE(std::equal(placed[k], placed[k] + bytes, originals[k])) << "input " << k << " was changed";
    }
    for (const auto& buffer : buffers_)
      ASSERT_TRUE(buffer->surroundings_intact());
  }

  const DType type_ = std::get<1>(GetParam());
  const Op op_ = std::get<2>(GetParam());
  ScopedTarget target_;
  const FoldFn kernel_ = fold_kernel(type_, op_, std::get<3>(GetParam()));
  std::mt19937_64 random_{42};
  std::array<std::unique_ptr<GuardedBuffer>, kMaxInputs + 2> buffers_;
  std::array<Bytes, kMaxInputs> data_;
  unsigned calls_ = 0;
};

TEST_P(FoldTest, EveryCount) {
  ASSERT_NE(kernel_, nullptr);
  std::vector<std::size_t> counts{127, 128, 129, 255, 256, 257, 1000, 1023, 1025, kMaxCount};
  for (std::size_t count = 0; count <= 70; ++count)
    counts.push_back(count);
  for (const std::size_t count : counts) {
    for (unsigned n = 1; n <= kMaxInputs; ++n) {
      check(count, n, kOwn, kNone);
      check(count, n, kOwn, kOwn);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(FoldTest, EveryAlias) {
  for (const std::size_t count : {1u, 2u, 5u, 17u, 33u, 65u, 150u, 1037u}) {
    for (unsigned n = 1; n <= kMaxInputs; ++n) {
      for (int alias = kOwn; alias < static_cast<int>(n); ++alias) {
        for (int alias2 = kNone; alias2 < static_cast<int>(n); ++alias2) {
          if (alias == alias2 && alias != kOwn) continue;
          check(count, n, alias, alias2);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// The same operands give the same bits wherever they stand, payloads of NaNs included.
TEST_P(FoldTest, BitsDoNotDependOnPosition) {
  const std::size_t size = dtype_size(type_);
  Bytes values = special_elements(type_);
  if (values.size() > 12 * size) {  // complex: a spread of the many
    for (std::size_t i = 0; i < 12; ++i)
      std::copy_n(&values[(i * 7 % (values.size() / size)) * size], size, &values[i * size]);
    values.resize(12 * size);
  }
  const Bytes more = random_elements(type_, 2, random_);
  values.insert(values.end(), more.begin(), more.end());
  const std::size_t n_values = values.size() / size;
  for (std::size_t a = 0; a < n_values; ++a) {
    for (std::size_t b = 0; b < n_values; ++b) {
      const std::size_t which[] = {a, b, (a + 3 * b) % n_values};
      for (const unsigned n : {2u, 3u}) {
        const void* one[] = {&values[which[0] * size], &values[which[1] * size], &values[which[2] * size]};
        Bytes want(size);
        kernel_(want.data(), nullptr, one, n, 1);
        for (const std::size_t count : {3u, 13u, 70u, 261u}) {
          std::array<Bytes, 3> in;
          const void* inputs[3];
          for (unsigned k = 0; k < 3; ++k) {
            for (std::size_t i = 0; i < count; ++i)
              in[k].insert(in[k].end(), &values[which[k] * size], &values[which[k] * size] + size);
            inputs[k] = in[k].data();
          }
          Bytes got(count * size), got2(count * size);
          kernel_(got.data(), count % 2 == 0 ? got2.data() : nullptr, inputs, n, count);
          for (std::size_t i = 0; i < count; ++i)
            ASSERT_TRUE(std::equal(want.begin(), want.end(), &got[i * size]))
                << "operands " << a << ", " << b << ", inputs " << n << ", count " << count << ", element "
                << i;
        }
      }
    }
  }
}

std::vector<Kernel> all_kernels() {
  std::vector<Kernel> kernels;
  for (const std::int64_t target : runnable_targets()) {
    for (const DType type : kAllTypes) {
      for (const Op op : kAllOps) {
        if (!is_valid(type, op)) continue;
        kernels.emplace_back(target, type, op, Stores::cached);
        if (op == Op::sum) kernels.emplace_back(target, type, op, Stores::streaming);
      }
    }
  }
  return kernels;
}

std::string kernel_name(const testing::TestParamInfo<Kernel>& info) {
  const auto& [target, type, op, stores] = info.param;
  return std::string(hwy::TargetName(target)) + "_" + dtype_name(type) + "_" + op_name(op) +
         (stores == Stores::streaming ? "_streaming" : "");
}

INSTANTIATE_TEST_SUITE_P(Kernels, FoldTest, testing::ValuesIn(all_kernels()), kernel_name);

}  // namespace
}  // namespace heddle::test
