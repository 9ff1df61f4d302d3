#include "sparse/tile.hpp"

#include <bit>
#include <cstring>

#include "engine/kernels/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sparse/tile.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/float_ops_inl.hpp"
#include "engine/kernels/half_inl.hpp"
#include "sparse/pack_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

struct WrappingSum {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Add(a, b);
  }
};

template <class Lane>
HWY_INLINE constexpr Lane neutral() {
  return std::is_floating_point_v<Lane> ? static_cast<Lane>(-0.0) : Lane{0};
}

// Adds the entries of `stream` that lie in the tile; returns the end of the indices that were touched.
template <class Element, class Operation, typename Index>
HWY_INLINE std::size_t scatter(TileScratch& tile, StreamCursor& stream, Index base) {
  using Lane = typename Element::Lane;
  constexpr std::size_t kGroup = 16;
  const hn::CappedTag<Lane, 1> one;
  const hn::CappedTag<Lane, kGroup> full;
  const hn::CappedTag<std::uint8_t, kGroup> bytes;
  auto* sums = reinterpret_cast<std::uint8_t*>(tile.sums);
  const auto* values = reinterpret_cast<const std::uint8_t*>(stream.values);
  const StreamCursor from = stream;
  const auto add = [&](auto d, std::size_t x, std::size_t i) HWY_ATTR {
    std::uint8_t* to = sums + x * sizeof(Lane);
    store_lanes(d, Operation::apply(d, load_lanes(d, to), Element::load(d, values + i * Element::kBytes)),
                to);
  };
  std::size_t at = from.at;
  for (; from.end - at >= kGroup; at += kGroup) {
    const auto last = static_cast<Index>(from.index<Index>(at + kGroup - 1) - base);
    if (last >= kTile) break;
    const auto first = static_cast<Index>(from.index<Index>(at) - base);
    if (last - first == kGroup - 1) {  // neighbours
      for (std::size_t k = 0; k < kGroup; k += hn::Lanes(full))
        add(full, first + k, at + k);
      for (std::size_t k = 0; k < kGroup; k += hn::Lanes(bytes)) {
        std::uint8_t* counts = tile.counts + first + k;
        hn::StoreU(hn::Add(hn::LoadU(bytes, counts), hn::Set(bytes, std::uint8_t{1})), bytes, counts);
      }
      continue;
    }
    HWY_UNROLL(16)
    for (std::size_t k = 0; k < kGroup; ++k) {
      const auto x = static_cast<Index>(from.index<Index>(at + k) - base);
      add(one, x, at + k);
      ++tile.counts[x];
    }
  }
  for (; at < from.end; ++at) {
    const auto x = static_cast<Index>(from.index<Index>(at) - base);
    if (x >= kTile) break;
    add(one, x, at);
    ++tile.counts[x];
  }
  if (at == stream.at) return 0;
  stream.at = at;
  return static_cast<std::size_t>(from.index<Index>(at - 1) - base) + 1;
}

// Which of 64 counts are not 0 (`some`) and which are `all`.
struct Touched {
  std::uint64_t some = 0;
  std::uint64_t all = 0;
};
HWY_INLINE Touched touched(const std::uint8_t* counts, std::uint8_t all) {
  const hn::CappedTag<std::uint8_t, 64> d;
  Touched found;
  std::uint8_t bits[8] = {};
  for (std::size_t k = 0; k < 64; k += hn::Lanes(d)) {
    const auto part = hn::LoadU(d, counts + k);
    std::uint64_t word = 0;
    hn::StoreMaskBits(d, hn::Ne(part, hn::Zero(d)), bits);
    std::memcpy(&word, bits, sizeof word);
    found.some |= word << k;
    hn::StoreMaskBits(d, hn::Eq(part, hn::Set(d, all)), bits);
    std::memcpy(&word, bits, sizeof word);
    found.all |= word << k;
  }
  return found;
}

// The chosen ones of 64 lanes, packed; vector(k) gives lanes k and on. Writes whole vectors, up to 64 lanes
// beyond the last.
template <class D, class Vectors>
HWY_INLINE void pack(D d, std::uint64_t bits, std::uint8_t* to, Vectors vector) {
  constexpr std::size_t kLanes = hn::MaxLanes(d);
  constexpr std::uint64_t kPart = (std::uint64_t{1} << kLanes) - 1;
  for (std::size_t k = 0; k < 64; k += kLanes) {
    store_lanes(d, packed(d, vector(k), lanes_of(d, bits, k)), to);
    to += static_cast<std::size_t>(std::popcount((bits >> k) & kPart)) * sizeof(hn::TFromD<D>);
  }
}

template <class Operation, class D, class V>
HWY_INLINE V add_absent(D d, V sum, hn::Mask<D> all) {
  if constexpr (std::is_floating_point_v<hn::TFromD<D>>)
    return hn::IfThenElse(all, sum, Operation::apply(d, sum, hn::Zero(d)));
  return sum;
}

template <class Element, class Operation, typename Index>
class Taker {
 public:
  using Lane = typename Element::Lane;
  static constexpr bool kWide = Element::kBytes != sizeof(Lane);

  Taker(TileScratch& tile, Index base, const Sink& sink, std::uint8_t streams)
      : tile_(tile),
        sums_(reinterpret_cast<std::uint8_t*>(tile.sums)),
        base_(base),
        room_(sink.room),
        streams_(streams),
        indices_(reinterpret_cast<std::uint8_t*>(sink.indices)),
        values_(reinterpret_cast<std::uint8_t*>(kWide ? tile.wide : sink.values)),
        rounded_(reinterpret_cast<std::uint8_t*>(sink.values)) {}

  HWY_INLINE std::size_t take(std::size_t used) {
    const auto counting = hn::Iota(hn::ScalableTag<Index>(), Index{0});  // made once: it goes through memory
    for (std::size_t x = 0; x < used; x += 64) {
      const Touched found = touched(tile_.counts + x, streams_);
      if (found.some == 0) continue;
      std::memset(tile_.counts + x, 0, 64);
      if (found.some == ~std::uint64_t{0}) {
        take_all(found, x, counting);
      } else if (kPacks && room_ - written_ >= 128) {  // whole vectors may reach beyond the entries
        take_chosen(found, x, counting);
      } else {
        take_each(found, x);
      }
      written_ += static_cast<std::size_t>(std::popcount(found.some));
    }
    if constexpr (kWide) round();
    return written_;
  }

 private:
  using Counting = hn::Vec<hn::ScalableTag<Index>>;

  // The sums from index base + x on, which leave their places.
  template <class D>
  HWY_INLINE hn::Vec<D> sums(D d, const Touched& found, std::size_t x, std::size_t k) {
    std::uint8_t* from = sums_ + (x + k) * sizeof(Lane);
    const auto sum = load_lanes(d, from);
    store_lanes(d, hn::Set(d, neutral<Lane>()), from);
    return add_absent<Operation>(d, sum, lanes_of(d, found.all, k));
  }

  HWY_INLINE void take_all(const Touched& found, std::size_t x, Counting counting) {
    const hn::ScalableTag<Index> di;
    const hn::ScalableTag<Lane> d;
    for (std::size_t k = 0; k < 64; k += hn::Lanes(di))
      store_lanes(di, hn::Add(counting, hn::Set(di, static_cast<Index>(base_ + x + k))),
                  indices_ + (written_ + k) * sizeof(Index));
    for (std::size_t k = 0; k < 64; k += hn::Lanes(d))
      store_lanes(d, sums(d, found, x, k), values_ + (written_ + k) * sizeof(Lane));
  }

  HWY_INLINE void take_chosen([[maybe_unused]] const Touched& found, [[maybe_unused]] std::size_t x,
                              [[maybe_unused]] Counting counting) {
    if constexpr (kPacks) {
      const hn::ScalableTag<Index> di;
      const hn::ScalableTag<Lane> d;
      const auto first = hn::Add(counting, hn::Set(di, static_cast<Index>(base_ + x)));
      pack(di, found.some, indices_ + written_ * sizeof(Index),
           [&](std::size_t k) HWY_ATTR { return hn::Add(first, hn::Set(di, static_cast<Index>(k))); });
      pack(d, found.some, values_ + written_ * sizeof(Lane),
           [&](std::size_t k) HWY_ATTR { return sums(d, found, x, k); });
    }
  }

  HWY_INLINE void take_each(const Touched& found, std::size_t x) {
    const hn::CappedTag<Lane, 1> one;
    std::size_t to = written_;
    for (std::uint64_t rest = found.some; rest != 0; rest &= rest - 1, ++to) {
      const auto k = static_cast<std::size_t>(std::countr_zero(rest));
      store_lanes(one, sums(one, found, x, k), values_ + to * sizeof(Lane));
      store_at<Index>(indices_, to, static_cast<Index>(base_ + x + k));
    }
  }

  HWY_INLINE void round() {
    const hn::ScalableTag<Lane> d;
    const typename Element::template Stored<decltype(d)> stored;
    constexpr std::size_t kLanes = hn::MaxLanes(d);
    std::size_t i = 0;
    for (; i + kLanes <= written_; i += kLanes)
      store_lanes(stored, Element::encode(d, load_lanes(d, values_ + i * sizeof(Lane))),
                  rounded_ + i * Element::kBytes);
    if (i == written_) return;
    std::uint8_t tail[kLanes * Element::kBytes];
    store_lanes(stored, Element::encode(d, load_lanes(d, values_ + i * sizeof(Lane))), tail);
    std::memcpy(rounded_ + i * Element::kBytes, tail, (written_ - i) * Element::kBytes);
  }

  TileScratch& tile_;
  std::uint8_t* sums_;
  Index base_;
  std::size_t room_;
  std::uint8_t streams_;
  std::uint8_t* indices_;
  std::uint8_t* values_;
  std::uint8_t* rounded_;
  std::size_t written_ = 0;
};

template <class Element, class Operation, typename Index>
std::size_t sum_tile(TileScratch& tile, std::span<StreamCursor> streams, std::uint64_t base,
                     const Sink& sink) {
  std::size_t used = 0;
  for (StreamCursor& stream : streams)
    used = std::max(used, scatter<Element, Operation, Index>(tile, stream, static_cast<Index>(base)));
  return Taker<Element, Operation, Index>(tile, static_cast<Index>(base), sink,
                                          static_cast<std::uint8_t>(streams.size()))
      .take(used);
}

template <typename Index>
TileFn for_type(DType type) {
  switch (type) {
    case DType::f16:
      return &sum_tile<Half, FloatSum, Index>;
    case DType::bf16:
      return &sum_tile<BrainFloat, FloatSum, Index>;
    case DType::f32:
      return &sum_tile<Plain<float>, FloatSum, Index>;
    case DType::f64:
      return &sum_tile<Plain<double>, FloatSum, Index>;
    case DType::i32:
      return &sum_tile<Plain<std::uint32_t>, WrappingSum, Index>;
    case DType::i64:
      return &sum_tile<Plain<std::uint64_t>, WrappingSum, Index>;
    default:
      return nullptr;
  }
}

TileFn choose_tile_sum(DType type, IndexType index_type) {
  return index_type == IndexType::u32 ? for_type<std::uint32_t>(type) : for_type<std::uint64_t>(type);
}

}  // namespace heddle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle {

namespace kernels {
HWY_EXPORT(choose_tile_sum);
}

TileFn tile_sum(DType type, IndexType index_type) {
  using namespace kernels;
  return HWY_DYNAMIC_DISPATCH(choose_tile_sum)(type, index_type);
}

void clear_tile(TileScratch& tile, DType type) {
  std::memset(tile.counts, 0, sizeof tile.counts);
  const auto fill = [&](auto value) {
    for (std::size_t x = 0; x < kTile + TileScratch::kSlack; ++x)
      store_at(tile.sums, x, value);
  };
  switch (type) {
    case DType::f64:
      return fill(-0.0);
    case DType::i32:
      return fill(std::uint32_t{0});
    case DType::i64:
      return fill(std::uint64_t{0});
    default:
      return fill(-0.0F);
  }
}

}  // namespace heddle
#endif
