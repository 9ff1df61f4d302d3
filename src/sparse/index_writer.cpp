#include "sparse/index_codec.hpp"

#include <algorithm>
#include <bit>

#include "engine/kernels/targets.hpp"
#include "sparse/stream_cursor.hpp"

// Nothing here names a vector, but counting and finding bits takes an instruction on all but the oldest
// processors, and the compiler makes vectors of the simple loops.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sparse/index_writer.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::HWY_NAMESPACE {

constexpr std::uint64_t kContinued = 0x8080808080808080;  // the bit of each byte of a number that has more

// What is written for the entries of a delta chunk: the indices that lie between each and the one before it.
template <typename Index>
class Gaps {
 public:
  Gaps(const SparseView& view, const ChunkRange& range)
      : indices_(view.indices), end_(range.end), at_(range.begin) {
    // So that the first entry's distance comes out like all others.
    before_ = static_cast<Index>(static_cast<Index>(range.first) - 1);
  }

  static constexpr std::size_t kBlock = 64;

  // The next ones, up to kBlock; `any` are the bits of all of them together.
  std::size_t next(Index (&gaps)[kBlock], Index& any) {
    const std::size_t count = std::min(kBlock, end_ - at_);
    if (count == 0) return 0;
    gaps[0] = static_cast<Index>(load_at<Index>(indices_, at_) - before_ - 1);
    for (std::size_t k = 1; k < count; ++k)
      gaps[k] =
          static_cast<Index>(load_at<Index>(indices_, at_ + k) - load_at<Index>(indices_, at_ + k - 1) - 1);
    any = 0;
    for (std::size_t k = 0; k < count; ++k)
      any |= gaps[k];
    at_ += count;
    before_ = load_at<Index>(indices_, at_ - 1);
    return count;
  }

 private:
  const void* indices_;
  std::size_t end_;
  std::size_t at_;
  Index before_;
};

template <typename Index>
std::uint64_t count_delta_bytes(const SparseView& view, const ChunkRange& range) {
  Gaps<Index> all(view, range);
  Index gaps[Gaps<Index>::kBlock];
  Index any = 0;
  std::uint64_t bytes = range.end - range.begin;
  while (const std::size_t count = all.next(gaps, any)) {
    for (unsigned shift = 7; shift < sizeof(Index) * 8 && any >> shift != 0; shift += 7) {
      Index longer = 0;
      for (std::size_t k = 0; k < count; ++k)
        longer += gaps[k] >> shift != 0 ? 1 : 0;
      bytes += longer;
    }
  }
  return bytes;
}

std::byte* write_any(std::uint64_t number, std::byte* to) {
  for (; number >= 0x80; number >>= 7)
    *to++ = static_cast<std::byte>(number | 0x80);
  *to++ = static_cast<std::byte>(number);
  return to;
}

// A number of up to 28 bits; writes four bytes, those behind it zeros.
std::byte* write_short(std::uint32_t number, std::byte* to) {
  const std::uint32_t groups =
      (number & 0x7f) | (number & 0x3f80) << 1 | (number & 0x1fc000) << 2 | (number & 0xfe00000) << 3;
  const auto bytes = static_cast<unsigned>((std::bit_width(number | 1) * 9 + 64) / 64 - 1);  // but one
  const auto more = static_cast<std::uint32_t>(kContinued & ((std::uint64_t{1} << (8 * bytes)) - 1));
  store_at<std::uint32_t>(to, 0, groups | more);
  return to + bytes + 1;
}

// A number of up to 14 bits; writes two bytes.
std::byte* write_two(std::uint32_t number, std::byte* to) {
  const std::uint32_t more = number >= 0x80 ? 1 : 0;
  store_at(to, 0, static_cast<std::uint16_t>((number & 0x7f) | more << 7 | (number & 0x3f80) << 1));
  return to + 1 + more;
}

template <typename Index>
std::size_t pack_delta(const SparseView& view, const ChunkRange& range, std::span<std::byte> out) {
  Gaps<Index> all(view, range);
  Index gaps[Gaps<Index>::kBlock];
  Index any = 0;
  std::byte* to = out.data();
  const std::byte* const end = to + out.size();
  while (const std::size_t count = all.next(gaps, any)) {
    const auto room = static_cast<std::size_t>(end - to);
    if (any < 0x80) {
      for (std::size_t k = 0; k < count; ++k)
        to[k] = static_cast<std::byte>(gaps[k]);
      to += count;
    } else if (any < (Index{1} << 14) && room >= 4 * Gaps<Index>::kBlock) {
      for (std::size_t k = 0; k < count; ++k)
        to = write_two(static_cast<std::uint32_t>(gaps[k]), to);
    } else if (any < (Index{1} << 28) && room >= 4 * Gaps<Index>::kBlock) {
      for (std::size_t k = 0; k < count; ++k)
        to = write_short(static_cast<std::uint32_t>(gaps[k]), to);
    } else {
      for (std::size_t k = 0; k < count; ++k)
        to = write_any(gaps[k], to);
    }
  }
  return static_cast<std::size_t>(to - out.data());
}

template <typename Index>
std::size_t pack_bitmap(const SparseView& view, const ChunkRange& range, std::span<std::byte> out) {
  auto* const bytes = out.data();
  const auto first = static_cast<Index>(range.first);
  const auto set = [&](std::size_t i) {
    const auto at = static_cast<Index>(load_at<Index>(view.indices, i) - first);
    bytes[at / 8] |= std::byte{1} << (at % 8);
  };
  // Neighbours often share a byte, and each would wait for the one before it: four places at a time.
  const std::size_t quarter = (range.end - range.begin) / 4;
  for (std::size_t i = range.begin; i < range.begin + quarter; ++i) {
    set(i);
    set(i + quarter);
    set(i + 2 * quarter);
    set(i + 3 * quarter);
  }
  for (std::size_t i = range.begin + 4 * quarter; i < range.end; ++i)
    set(i);
  return bitmap_bytes(range.span);
}

template <typename Index, typename Place>
std::size_t pack_list(const SparseView& view, const ChunkRange& range, std::span<std::byte> out) {
  const auto first = static_cast<Index>(range.first);
  for (std::size_t i = range.begin; i < range.end; ++i)
    store_at(out.data(), i - range.begin,
             static_cast<Place>(static_cast<Index>(load_at<Index>(view.indices, i) - first)));
  return (range.end - range.begin) * sizeof(Place);
}

template <typename Index>
std::size_t pack(const SparseView& view, const ChunkRange& range, Encoding encoding,
                 std::span<std::byte> out) {
  switch (encoding) {
    case Encoding::dense:
      return 0;
    case Encoding::delta:
      return pack_delta<Index>(view, range, out);
    case Encoding::bitmap:
      return pack_bitmap<Index>(view, range, out);
    case Encoding::list:
      break;
  }
  switch (list_width(range.span)) {
    case 2:
      return pack_list<Index, std::uint16_t>(view, range, out);
    case 4:
      return pack_list<Index, std::uint32_t>(view, range, out);
    default:
      return pack_list<Index, std::uint64_t>(view, range, out);
  }
}

std::uint64_t count_delta(const SparseView& view, const ChunkRange& range) {
  return view.index_type == IndexType::u32 ? count_delta_bytes<std::uint32_t>(view, range)
                                           : count_delta_bytes<std::uint64_t>(view, range);
}

std::size_t pack_form(const SparseView& view, const ChunkRange& range, Encoding encoding,
                      std::span<std::byte> to) {
  return view.index_type == IndexType::u32 ? pack<std::uint32_t>(view, range, encoding, to)
                                           : pack<std::uint64_t>(view, range, encoding, to);
}

}  // namespace heddle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle {

namespace kernels {
HWY_EXPORT(count_delta);
HWY_EXPORT(pack_form);
}  // namespace kernels

std::uint64_t delta_bytes(const SparseView& view, const ChunkRange& range) {
  using namespace kernels;
  return HWY_DYNAMIC_DISPATCH(count_delta)(view, range);
}

std::size_t pack_indices(const SparseView& view, const ChunkRange& range, Encoding encoding,
                         std::span<std::byte> to) {
  using namespace kernels;
  return HWY_DYNAMIC_DISPATCH(pack_form)(view, range, encoding, to);
}

}  // namespace heddle
#endif
