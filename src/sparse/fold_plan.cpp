#include "sparse/fold_plan.hpp"

#include <algorithm>
#include <cstring>

#include "engine/kernels/kernels.hpp"

namespace heddle {

FoldPlan::FoldPlan(std::span<const SparseView> streams, const SparseView& result)
    : type_(result.value_type), count_(result.count) {
  for (const SparseView& stream : streams) {
    std::vector<std::uint64_t>& places = places_.emplace_back();
    places.reserve(stream.count);
    std::size_t at = 0;
    for (std::size_t i = 0; i < stream.count; ++i) {
      while (result.index(at) < stream.index(i))
        ++at;
      places.push_back(at);
    }
  }
}

// Block by block each stream is spread over a short dense vector, with +0 where it has nothing: then it is
// the dense kernel's sum.
void FoldPlan::sum(std::span<const void* const> values, void* out) const {
  constexpr std::size_t kBlock = 1024;
  const std::size_t width = dtype_size(type_);
  const FoldFn fold = fold_kernel(type_, Op::sum);
  const std::size_t streams = places_.size();
  std::vector<std::byte> spread(streams * kBlock * width);
  std::vector<const void*> inputs;
  for (std::size_t s = 0; s < streams; ++s)
    inputs.push_back(spread.data() + s * kBlock * width);
  std::vector<std::size_t> next(streams);
  for (std::size_t first = 0; first < count_; first += kBlock) {
    const std::size_t here = std::min(kBlock, count_ - first);
    std::fill(spread.begin(), spread.end(), std::byte{0});
    for (std::size_t s = 0; s < streams; ++s) {
      std::byte* block = spread.data() + s * kBlock * width;
      const auto* from = static_cast<const std::byte*>(values[s]);
      const std::vector<std::uint64_t>& places = places_[s];
      for (std::size_t& i = next[s]; i < places.size() && places[i] < first + here; ++i)
        std::memcpy(block + (places[i] - first) * width, from + i * width, width);
    }
    fold(static_cast<std::byte*>(out) + first * width, nullptr, inputs.data(), static_cast<unsigned>(streams),
         here);
  }
}

}  // namespace heddle
