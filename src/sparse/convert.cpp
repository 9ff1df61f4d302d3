#include "sparse/convert.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/round_up.hpp"
#include "engine/kernels/targets.hpp"
#include "sparse/stream_cursor.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sparse/convert.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/fold_inl.hpp"
#include "sparse/pack_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Which of 64 elements have a bit set.
template <typename Bits>
HWY_INLINE std::uint64_t nonzero(const std::uint8_t* from) {
  const hn::CappedTag<Bits, 64> d;
  std::uint64_t found = 0;
  for (std::size_t k = 0; k < 64; k += hn::Lanes(d)) {
    std::uint8_t part[8] = {};
    std::uint64_t word = 0;
    hn::StoreMaskBits(d, hn::Ne(load_lanes(d, from + k * sizeof(Bits)), hn::Zero(d)), part);
    std::memcpy(&word, part, sizeof word);
    found |= word << k;
  }
  return found;
}

// Calls use(elements, position of the first, which are not zero) for every 64 elements; the last ones are
// followed by zeros.
template <typename Bits, class Use>
HWY_INLINE void for_each_group(const void* dense, std::size_t count, Use use) {
  const auto* from = static_cast<const std::uint8_t*>(dense);
  std::size_t at = 0;
  for (; count - at >= 64; at += 64) {
    const std::uint8_t* group = from + at * sizeof(Bits);
    use(group, at, nonzero<Bits>(group));
  }
  if (at == count) return;
  std::uint8_t tail[64 * sizeof(Bits)] = {};
  std::memcpy(tail, from + at * sizeof(Bits), (count - at) * sizeof(Bits));
  use(static_cast<const std::uint8_t*>(tail), at, nonzero<Bits>(tail));
}

template <typename Bits>
std::size_t count_entries(const void* dense, std::size_t count) {
  std::size_t found = 0;
  for_each_group<Bits>(dense, count, [&](const std::uint8_t*, std::size_t, std::uint64_t bits) HWY_ATTR {
    found += static_cast<std::size_t>(std::popcount(bits));
  });
  return found;
}

// Entries one by one.
template <typename Bits, typename Index>
HWY_INLINE void take_each(const std::uint8_t* group, Index first, std::uint64_t bits, std::uint8_t* indices,
                          std::uint8_t* values) {
  for (std::size_t to = 0; bits != 0; bits &= bits - 1, ++to) {
    const auto k = static_cast<std::size_t>(std::countr_zero(bits));
    store_at(indices, to, static_cast<Index>(first + static_cast<Index>(k)));
    store_at(values, to, load_at<Bits>(group, k));
  }
}

#if HWY_TARGET == HWY_AVX3

// The chosen ones of 64 lanes, and nothing behind them; vector(k) gives lanes k and on.
template <class D, class Vectors>
HWY_INLINE void pack_exactly(D d, std::uint64_t bits, std::uint8_t* to, Vectors vector) {
  using T = hn::TFromD<D>;
  constexpr std::size_t kLanes = hn::MaxLanes(d);
  for (std::size_t k = 0; k < 64; k += kLanes) {
    const std::uint64_t part = (bits >> k) & ((std::uint64_t{1} << kLanes) - 1);
    const auto count = static_cast<std::size_t>(std::popcount(part));
    const auto lanes = packed(d, vector(k), lanes_of(d, part, 0));
    hn::BlendedStore(lanes, lanes_of(d, (std::uint64_t{1} << count) - 1, 0), d, reinterpret_cast<T*>(to));
    to += count * sizeof(T);
  }
}

template <typename Bits>
HWY_INLINE void pack_values(const std::uint8_t* group, std::uint64_t bits, std::uint8_t* values) {
  if constexpr (sizeof(Bits) >= 4) {
    const hn::ScalableTag<Bits> d;
    pack_exactly(d, bits, values,
                 [&](std::size_t k) HWY_ATTR { return load_lanes(d, group + k * sizeof(Bits)); });
  } else {
    for (std::size_t to = 0; bits != 0; bits &= bits - 1, ++to)
      store_at(values, to, load_at<Bits>(group, static_cast<std::size_t>(std::countr_zero(bits))));
  }
}

template <typename Bits, typename Index>
HWY_INLINE void take_group(const std::uint8_t* group, Index first, std::uint64_t bits, std::uint8_t* indices,
                           std::uint8_t* values) {
  constexpr int kFew = 4;
  if (std::popcount(bits) <= kFew) return take_each<Bits>(group, first, bits, indices, values);
  const hn::ScalableTag<Index> di;
  const auto counting = hn::Iota(di, Index{0});
  pack_exactly(di, bits, indices, [&](std::size_t k) HWY_ATTR {
    return hn::Add(counting, hn::Set(di, static_cast<Index>(first + static_cast<Index>(k))));
  });
  pack_values<Bits>(group, bits, values);
}

#else

template <typename Bits, typename Index>
HWY_INLINE void take_group(const std::uint8_t* group, Index first, std::uint64_t bits, std::uint8_t* indices,
                           std::uint8_t* values) {
  take_each<Bits>(group, first, bits, indices, values);
}

#endif

template <typename Bits, typename Index>
std::size_t take_entries(const void* dense, std::uint64_t first, std::size_t count, void* indices,
                         void* values) {
  auto* to_indices = static_cast<std::uint8_t*>(indices);
  auto* to_values = static_cast<std::uint8_t*>(values);
  std::size_t found = 0;
  for_each_group<Bits>(
      dense, count, [&](const std::uint8_t* group, std::size_t at, std::uint64_t bits) HWY_ATTR {
        if (bits == 0) return;
        take_group<Bits>(group, static_cast<Index>(first + at), bits, to_indices + found * sizeof(Index),
                         to_values + found * sizeof(Bits));
        found += static_cast<std::size_t>(std::popcount(bits));
      });
  return found;
}

using CountFn = std::size_t (*)(const void*, std::size_t);
using TakeFn = std::size_t (*)(const void*, std::uint64_t, std::size_t, void*, void*);

CountFn choose_count(std::size_t width) {
  return width == 2   ? &count_entries<std::uint16_t>
         : width == 4 ? &count_entries<std::uint32_t>
                      : &count_entries<std::uint64_t>;
}

template <typename Index>
TakeFn take_of_width(std::size_t width) {
  return width == 2   ? &take_entries<std::uint16_t, Index>
         : width == 4 ? &take_entries<std::uint32_t, Index>
                      : &take_entries<std::uint64_t, Index>;
}
TakeFn choose_take(std::size_t width, IndexType index_type) {
  return index_type == IndexType::u32 ? take_of_width<std::uint32_t>(width)
                                      : take_of_width<std::uint64_t>(width);
}

}  // namespace heddle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle {

namespace kernels {
HWY_EXPORT(choose_count);
HWY_EXPORT(choose_take);
}  // namespace kernels

namespace {

template <typename Index, typename Bits>
void scatter_entries(const SparseView& view, Index first, void* dense) {
  constexpr std::size_t kGroup = 16;
  const SparseView from = view;  // a copy: stores might otherwise be to its fields
  auto* to = static_cast<std::byte*>(dense);
  const auto* values = static_cast<const std::byte*>(from.values);
  const auto place = [&](std::size_t i) {
    return static_cast<std::size_t>(static_cast<Index>(load_at<Index>(from.indices, i) - first));
  };
  std::size_t i = 0;
  for (; from.count - i >= kGroup; i += kGroup) {
    if (place(i + kGroup - 1) - place(i) == kGroup - 1) {
      std::memcpy(to + place(i) * sizeof(Bits), values + i * sizeof(Bits), kGroup * sizeof(Bits));
      continue;
    }
    for (std::size_t k = i; k < i + kGroup; ++k)
      store_at(to, place(k), load_at<Bits>(values, k));
  }
  for (; i < from.count; ++i)
    store_at(to, place(i), load_at<Bits>(values, i));
}

template <typename Index>
void scatter_values(const SparseView& view, Index first, void* dense) {
  switch (dtype_size(view.value_type)) {
    case 2:
      return scatter_entries<Index, std::uint16_t>(view, first, dense);
    case 4:
      return scatter_entries<Index, std::uint32_t>(view, first, dense);
    default:
      return scatter_entries<Index, std::uint64_t>(view, first, dense);
  }
}

}  // namespace

std::size_t count_nonzero(const void* dense, std::size_t count, DType type) {
  using namespace kernels;
  return HWY_DYNAMIC_DISPATCH(choose_count)(dtype_size(type))(dense, count);
}

std::size_t take_nonzero(const void* dense, std::uint64_t first, std::size_t count, DType type,
                         IndexType index_type, void* indices, void* values) {
  using namespace kernels;
  return HWY_DYNAMIC_DISPATCH(choose_take)(dtype_size(type), index_type)(dense, first, count, indices,
                                                                         values);
}

void scatter(const SparseView& view, std::uint64_t first, void* dense) {
  if (view.index_type == IndexType::u32) {
    scatter_values(view, static_cast<std::uint32_t>(first), dense);
  } else {
    scatter_values(view, first, dense);
  }
}

void scatter(std::span<const SparseView> parts, void* dense, std::size_t bytes, bool keeps) {
  if (!keeps && bytes > 0) std::memset(dense, 0, bytes);
  for (const SparseView& part : parts)
    scatter(part, 0, dense);
}

// In the middle of each part of the vector; without a product that might not fit a number. Parts of many
// pieces are of one length, and what is left over lies before and behind them.
SampledPiece sampled_piece(std::size_t count, DType type, std::size_t samples, std::size_t s) {
  const std::size_t each = 64 / dtype_size(type);
  const std::size_t pieces = div_up(count, each);
  const std::size_t part = pieces / samples;
  const std::size_t over = pieces % samples;
  const std::size_t before = part < kEqualParts ? over * s / samples + part / 2 : (over + part) / 2;
  const std::size_t piece = part * s + before;
  return {piece * each, std::min(each, count - piece * each)};
}

double sampled_density(const void* dense, std::size_t count, DType type, std::size_t samples) {
  using namespace kernels;
  const std::size_t width = dtype_size(type);
  const std::size_t each = 64 / width;
  const std::size_t pieces = div_up(count, each);
  const auto count_part = HWY_DYNAMIC_DISPATCH(choose_count)(width);
  if (count == 0 || samples == 0) return 0;
  if (samples >= pieces) return static_cast<double>(count_part(dense, count)) / static_cast<double>(count);
  std::size_t found = 0;
  std::size_t seen = 0;
  for (std::size_t s = 0; s < samples; ++s) {
    const SampledPiece piece = sampled_piece(count, type, samples, s);
    found += count_part(static_cast<const std::byte*>(dense) + piece.first * width, piece.count);
    seen += piece.count;
  }
  return static_cast<double>(found) / static_cast<double>(seen);
}

}  // namespace heddle
#endif
