#include "sparse/bitmap.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "engine/kernels/targets.hpp"
#include "sparse/stream_cursor.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sparse/bitmap.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/fold_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// ---- Marking

// A byte for each index of a tile: stores do not wait for each other, as those to the same word would.
constexpr std::size_t kMarkTile = 8192;

template <typename Index>
HWY_INLINE bool rises(const StreamCursor& c, std::size_t end) {
  unsigned broken = 0;
  for (std::size_t i = c.at + 1; i < end; ++i)
    broken |= c.index<Index>(i - 1) < c.index<Index>(i) ? 0U : 1U;
  return broken == 0;
}

HWY_INLINE void take_marks(std::uint8_t* marks, std::uint64_t* words, std::size_t n) {
  const hn::CappedTag<std::uint8_t, 64> d;
  for (std::size_t w = 0; w < n; ++w) {
    std::uint64_t word = 0;
    for (std::size_t k = 0; k < 64; k += hn::Lanes(d)) {
      std::uint8_t bits[8] = {};
      std::uint64_t part = 0;
      hn::StoreMaskBits(d, hn::Ne(hn::LoadU(d, marks + w * 64 + k), hn::Zero(d)), bits);
      std::memcpy(&part, bits, sizeof part);
      word |= part << k;
    }
    words[w] = word;
  }
  std::memset(marks, 0, n * 64);
}

template <typename Index>
bool mark(const SparseView& stream, std::uint64_t* words) {
  std::uint8_t marks[kMarkTile] = {};
  const std::uint64_t all = bitmap_words(stream.dimension);
  std::uint64_t marked = 0;  // words that are set
  StreamCursor c{static_cast<const std::byte*>(stream.indices), nullptr, 0, stream.count};
  while (!c.done()) {
    const std::uint64_t first = c.index<Index>(c.at) / kMarkTile * (kMarkTile / kWordIndices);
    if (c.index<Index>(c.at) >= stream.dimension || first < marked) return false;
    const std::uint64_t base = first * kWordIndices;
    const std::uint64_t limit = std::min<std::uint64_t>(kMarkTile, stream.dimension - base);
    // Where the indices do not rise the search ends somewhere, and it is noticed.
    std::size_t end = c.end;
    if (c.index<Index>(c.end - 1) - base >= limit) end = c.find<Index>(static_cast<Index>(base + limit));
    if (end == c.at || !rises<Index>(c, end) || c.index<Index>(end - 1) - base >= limit) return false;
    std::fill(words + marked, words + first, std::uint64_t{0});
    const std::size_t n = bitmap_words(limit);
    if (end - c.at == kMarkTile) {
      std::fill(words + first, words + first + n, ~std::uint64_t{0});
    } else {
      HWY_UNROLL(4)
      for (std::size_t i = c.at; i < end; ++i)
        marks[c.index<Index>(i) - base] = 1;
      take_marks(marks, words + first, n);
    }
    marked = first + n;
    c.at = end;
  }
  std::fill(words + marked, words + all, std::uint64_t{0});
  return true;
}

bool mark_any(const SparseView& stream, std::uint64_t* words) {
  return stream.index_type == IndexType::u32 ? mark<std::uint32_t>(stream, words)
                                             : mark<std::uint64_t>(stream, words);
}

// ---- Spreading

#if HWY_TARGET == HWY_AVX3

// Highway has no such thing before 1.0.4. What is masked out of a load is not touched.
HWY_INLINE __m512i spread_lanes(std::uint32_t, std::uint64_t mask, const std::uint8_t* from) {
  return _mm512_maskz_expandloadu_epi32(static_cast<__mmask16>(mask), from);
}
HWY_INLINE __m512i spread_lanes(std::uint64_t, std::uint64_t mask, const std::uint8_t* from) {
  return _mm512_maskz_expandloadu_epi64(static_cast<__mmask8>(mask), from);
}

template <typename Bits>
HWY_INLINE void spread_word(std::uint64_t bits, const std::uint8_t* from, std::uint8_t* to) {
  if constexpr (sizeof(Bits) == 2) {  // as lanes of 32 bits
    for (std::size_t k = 0; k < 64; k += 16) {
      const auto mask = static_cast<__mmask16>(bits >> k);
      const auto count = static_cast<std::size_t>(std::popcount(static_cast<std::uint16_t>(mask)));
      const auto there = static_cast<__mmask16>((1U << count) - 1);
      const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, from));
      const __m256i narrow = _mm512_cvtepi32_epi16(_mm512_maskz_expand_epi32(mask, wide));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 2 * k), narrow);
      from += 2 * count;
    }
  } else {
    constexpr std::size_t kLanes = 64 / sizeof(Bits);
    for (std::size_t k = 0; k < 64; k += kLanes) {
      const std::uint64_t mask = (bits >> k) & ((std::uint64_t{1} << kLanes) - 1);
      _mm512_storeu_si512(to + k * sizeof(Bits), spread_lanes(Bits{}, mask, from));
      from += static_cast<std::size_t>(std::popcount(mask)) * sizeof(Bits);
    }
  }
}

#else

template <typename Bits>
HWY_INLINE void spread_word(std::uint64_t bits, const std::uint8_t* from, std::uint8_t* to) {
  std::memset(to, 0, 64 * sizeof(Bits));
  for (std::size_t i = 0; bits != 0; bits &= bits - 1, ++i)
    store_at(to, static_cast<std::size_t>(std::countr_zero(bits)), load_at<Bits>(from, i));
}

#endif

template <typename Bits>
std::size_t spread(const std::uint64_t* words, std::size_t n, const std::byte* packed, std::byte* dense) {
  const auto* from = reinterpret_cast<const std::uint8_t*>(packed);
  auto* to = reinterpret_cast<std::uint8_t*>(dense);
  std::size_t taken = 0;
  for (std::size_t w = 0; w < n; ++w, to += 64 * sizeof(Bits)) {
    const std::uint64_t bits = words[w];
    if (bits == 0) {
      std::memset(to, 0, 64 * sizeof(Bits));
    } else if (bits == ~std::uint64_t{0}) {
      std::memcpy(to, from + taken * sizeof(Bits), 64 * sizeof(Bits));
    } else {
      spread_word<Bits>(bits, from + taken * sizeof(Bits), to);
    }
    taken += static_cast<std::size_t>(std::popcount(bits));
  }
  return taken;
}

// ---- Packing

#if HWY_TARGET == HWY_AVX3

HWY_INLINE __m512i packed_lanes(std::uint32_t, std::uint64_t mask, __m512i v) {
  return _mm512_maskz_compress_epi32(static_cast<__mmask16>(mask), v);
}
HWY_INLINE __m512i packed_lanes(std::uint64_t, std::uint64_t mask, __m512i v) {
  return _mm512_maskz_compress_epi64(static_cast<__mmask8>(mask), v);
}

// The chosen ones of 64 lanes; vector(k) gives lanes k and on. Whole vectors are written.
template <typename Lane, class Vectors>
HWY_INLINE void pack_lanes(std::uint64_t bits, std::uint8_t* to, Vectors vector) {
  constexpr std::size_t kLanes = 64 / sizeof(Lane);
  HWY_UNROLL(8)
  for (std::size_t k = 0; k < 64; k += kLanes) {
    const std::uint64_t part = (bits >> k) & ((std::uint64_t{1} << kLanes) - 1);
    _mm512_storeu_si512(to, packed_lanes(Lane{}, part, vector(k)));
    to += static_cast<std::size_t>(std::popcount(part)) * sizeof(Lane);
  }
}

template <typename Bits>
HWY_INLINE void pack_word(std::uint64_t bits, const std::uint8_t* from, std::uint8_t* to) {
  if constexpr (sizeof(Bits) == 2) {
    for (std::size_t k = 0; k < 64; k += 16) {
      const auto mask = static_cast<__mmask16>(bits >> k);
      const __m512i wide =
          _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 2 * k)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                          _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(mask, wide)));
      to += 2 * static_cast<std::size_t>(std::popcount(static_cast<std::uint16_t>(mask)));
    }
  } else {
    pack_lanes<Bits>(bits, to,
                     [&](std::size_t k) HWY_ATTR { return _mm512_loadu_si512(from + k * sizeof(Bits)); });
  }
}

template <typename Index>
HWY_INLINE void index_word(std::uint64_t bits, Index base, std::uint8_t* to) {
  const hn::ScalableTag<Index> d;
  const auto first = hn::Add(hn::Iota(d, Index{0}), hn::Set(d, base));
  pack_lanes<Index>(bits, to, [&](std::size_t k) HWY_ATTR {
    return hn::Add(first, hn::Set(d, static_cast<Index>(k))).raw;
  });
}

#else

template <typename Bits>
HWY_INLINE void pack_word(std::uint64_t bits, const std::uint8_t* from, std::uint8_t* to) {
  for (std::size_t i = 0; bits != 0; bits &= bits - 1, ++i)
    store_at(to, i, load_at<Bits>(from, static_cast<std::size_t>(std::countr_zero(bits))));
}

template <typename Index>
HWY_INLINE void index_word(std::uint64_t bits, Index base, std::uint8_t* to) {
  for (std::size_t i = 0; bits != 0; bits &= bits - 1, ++i)
    store_at(to, i, static_cast<Index>(base + static_cast<Index>(std::countr_zero(bits))));
}

#endif

template <typename Bits>
std::size_t pack(const std::uint64_t* words, std::size_t n, const std::byte* dense, std::byte* packed) {
  const auto* from = reinterpret_cast<const std::uint8_t*>(dense);
  auto* to = reinterpret_cast<std::uint8_t*>(packed);
  std::size_t written = 0;
  for (std::size_t w = 0; w < n; ++w, from += 64 * sizeof(Bits)) {
    const std::uint64_t bits = words[w];
    if (bits == 0) continue;
    if (bits == ~std::uint64_t{0}) {
      std::memcpy(to + written * sizeof(Bits), from, 64 * sizeof(Bits));
    } else {
      pack_word<Bits>(bits, from, to + written * sizeof(Bits));
    }
    written += static_cast<std::size_t>(std::popcount(bits));
  }
  return written;
}

template <typename Index>
std::size_t write_indices(const std::uint64_t* words, std::size_t n, std::uint64_t first, std::byte* out) {
  auto* to = reinterpret_cast<std::uint8_t*>(out);
  const hn::ScalableTag<Index> d;
  const auto counting = hn::Iota(d, Index{0});
  for (std::size_t w = 0; w < n; ++w) {
    const std::uint64_t bits = words[w];
    if (bits == 0) continue;
    const auto base = static_cast<Index>(first + w * 64);
    if (bits == ~std::uint64_t{0}) {
      for (std::size_t k = 0; k < 64; k += hn::Lanes(d))
        store_lanes(d, hn::Add(counting, hn::Set(d, static_cast<Index>(base + static_cast<Index>(k)))),
                    to + k * sizeof(Index));
    } else {
      index_word<Index>(bits, base, to);
    }
    to += static_cast<std::size_t>(std::popcount(bits)) * sizeof(Index);
  }
  return static_cast<std::size_t>(to - reinterpret_cast<std::uint8_t*>(out)) / sizeof(Index);
}

template <typename Bits>
BitmapKernels for_width(IndexType index_type) {
  return {&spread<Bits>, &pack<Bits>,
          index_type == IndexType::u32 ? &write_indices<std::uint32_t> : &write_indices<std::uint64_t>};
}

BitmapKernels choose_bitmap_kernels(std::size_t width, IndexType index_type) {
  switch (width) {
    case 2:
      return for_width<std::uint16_t>(index_type);
    case 4:
      return for_width<std::uint32_t>(index_type);
    default:
      return for_width<std::uint64_t>(index_type);
  }
}

// ---- Bits and bytes

std::size_t count_of(const std::uint64_t* words, std::size_t n) {
  std::size_t count = 0;
  for (std::size_t w = 0; w < n; ++w)
    count += static_cast<std::size_t>(std::popcount(words[w]));
  return count;
}

void copy_past_cache(void* to, const void* from, std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  constexpr std::size_t kLanes = hn::MaxLanes(d);
  auto* out = static_cast<std::uint8_t*>(to);
  const auto* in = static_cast<const std::uint8_t*>(from);
  // Whole lines past the cache; the ends share theirs with what is beside them.
  const std::size_t head = std::min(bytes, (0 - reinterpret_cast<std::uintptr_t>(out)) % 64);
  std::memcpy(out, in, head);
  std::size_t at = head;
  for (; at + 64 <= bytes; at += 64) {
    for (std::size_t k = 0; k < 64; k += kLanes)
      stream_lanes(d, load_lanes(d, in + at + k), out + at + k);
  }
  std::memcpy(out + at, in + at, bytes - at);
  hwy::FlushStream();
}

}  // namespace heddle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle {

namespace kernels {
HWY_EXPORT(mark_any);
HWY_EXPORT(choose_bitmap_kernels);
HWY_EXPORT(count_of);
HWY_EXPORT(copy_past_cache);
}  // namespace kernels

using namespace kernels;

bool mark_entries(const SparseView& stream, std::uint64_t* words) {
  return HWY_DYNAMIC_DISPATCH(mark_any)(stream, words);
}

BitmapKernels bitmap_kernels(DType value_type, IndexType index_type) {
  return HWY_DYNAMIC_DISPATCH(choose_bitmap_kernels)(dtype_size(value_type), index_type);
}

std::size_t count_bits(const std::uint64_t* words, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(count_of)(words, n);
}

void streamed_copy(void* to, const void* from, std::size_t bytes) {
  HWY_DYNAMIC_DISPATCH(copy_past_cache)(to, from, bytes);
}

}  // namespace heddle
#endif
