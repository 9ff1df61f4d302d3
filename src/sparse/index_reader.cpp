#include "sparse/index_codec.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "engine/kernels/targets.hpp"
#include "sparse/stream_cursor.hpp"

// As in index_writer.cpp.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sparse/index_reader.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::HWY_NAMESPACE {

constexpr std::uint64_t kContinued = 0x8080808080808080;  // the bit of each byte of a number that has more

template <typename Index>
bool unpack_dense(const WireChunk& chunk, void* out) {
  const auto first = static_cast<Index>(chunk.first);
  for (std::size_t i = 0; i < chunk.count; ++i)
    store_at(out, i, static_cast<Index>(first + static_cast<Index>(i)));
  return true;
}

template <typename Index, typename Place>
bool unpack_list(const WireChunk& chunk, void* out) {
  const auto first = static_cast<Index>(chunk.first);
  const std::byte* from = chunk.indices.data();
  bool rises = true;
  for (std::size_t i = 1; i < chunk.count; ++i)
    rises &= load_at<Place>(from, i - 1) < load_at<Place>(from, i);
  if (!rises) return false;
  if (chunk.count > 0 && load_at<Place>(from, chunk.count - 1) >= chunk.span) return false;
  for (std::size_t i = 0; i < chunk.count; ++i)
    store_at(out, i, static_cast<Index>(first + static_cast<Index>(load_at<Place>(from, i))));
  return true;
}

// 64 bits of the map, of which there are `bytes`.
std::uint64_t word_of(std::span<const std::byte> bytes, std::size_t at) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data() + at, std::min<std::size_t>(8, bytes.size() - at));
  return word;
}

template <typename Index>
bool unpack_bitmap(const WireChunk& chunk, void* out) {
  const std::span<const std::byte> bytes = chunk.indices;
  std::size_t found = 0;
  for (std::size_t at = 0; at < bytes.size(); at += 8)
    found += static_cast<std::size_t>(std::popcount(word_of(bytes, at)));
  if (found != chunk.count) return false;
  if (chunk.span % 8 != 0 && std::to_integer<unsigned>(bytes.back()) >> (chunk.span % 8) != 0) return false;
  std::size_t to = 0;
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    std::uint64_t word = word_of(bytes, at);
    const auto base = static_cast<Index>(static_cast<Index>(chunk.first) + static_cast<Index>(at * 8));
    const auto here = static_cast<std::size_t>(std::popcount(word));
    const auto take = [&](std::size_t k) {
      store_at(out, to + k, static_cast<Index>(base + static_cast<Index>(std::countr_zero(word))));
      word &= word - 1;
    };
    if (word == ~std::uint64_t{0}) {
      for (std::size_t k = 0; k < 64; ++k)
        store_at(out, to + k, static_cast<Index>(base + static_cast<Index>(k)));
    } else if (chunk.count - to >= here + 8) {  // eight at a time; those too many are overwritten
      for (std::size_t k = 0; k < here; k += 8)
        for (std::size_t n = 0; n < 8; ++n)
          take(k + n);
    } else {
      for (std::size_t k = 0; k < here; ++k)
        take(k);
    }
    to += here;
  }
  return true;
}

template <typename Index>
class DeltaReader {
 public:
  DeltaReader(const WireChunk& chunk, void* out)
      : bytes_(chunk.indices),
        first_(static_cast<Index>(chunk.first)),
        span_(chunk.span),
        count_(chunk.count),
        out_(out) {}

  bool all() {
    // Eight of the shortest numbers, or four that lie in eight bytes and hence are of 35 bits at most: their
    // sum is no concern below 2^63.
    while (span_ <= std::uint64_t{1} << 63 && bytes_.size() - at_ >= 8 && count_ - to_ >= 8) {
      const auto word = load_at<std::uint64_t>(bytes_.data() + at_, 0);
      const std::uint64_t ends = ~word & kContinued;
      const std::uint64_t after = ~ends << 8 & kContinued;  // bytes that go on with a number
      if (ends == kContinued) {
        take_eight(word);
      } else if (std::popcount(ends) >= 4) {
        const std::uint64_t set = ((word & ~kContinued) + ~kContinued) | word;  // high bit: the byte is not 0
        if ((after & ~set) != 0) return false;                                  // a superfluous one
        if ((after & ~ends) == 0) {
          take_four<2>(word, ends);
        } else {
          take_four<5>(word, ends);
        }
      } else if (!take_any()) {
        return false;
      }
      if (next_ > span_) return false;
    }
    while (to_ < count_)
      if (!take_any()) return false;
    return at_ == bytes_.size();
  }

 private:
  void put(std::uint64_t place) {
    store_at(out_, to_++, static_cast<Index>(first_ + static_cast<Index>(place)));
  }

  void take_eight(std::uint64_t word) {
    for (unsigned k = 0; k < 8; ++k) {
      next_ += (word >> (8 * k)) & 0x7f;
      put(next_++);
    }
    at_ += 8;
  }

  // Four numbers of up to kMost bytes each.
  template <int kMost>
  void take_four(std::uint64_t word, std::uint64_t ends) {
    unsigned begin = 0;
    for (int k = 0; k < 4; ++k) {
      const auto end = static_cast<unsigned>(std::countr_zero(ends)) + 1;  // in bits
      ends &= ends - 1;
      if constexpr (kMost == 2) {
        const std::uint64_t groups = word >> begin;
        next_ += (groups & 0x7f) | (groups >> 1 & 0x3f80 & (0 - (groups >> 7 & 1)));
      } else {
        const std::uint64_t groups = (word << (64 - end)) >> (64 - end) >> begin;
        next_ += (groups & 0x7f) | (groups >> 1 & 0x3f80) | (groups >> 2 & 0x1fc000) |
                 (groups >> 3 & 0xfe00000) | (groups >> 4 & 0x7f0000000);
      }
      put(next_++);
      begin = end;
    }
    at_ += begin / 8;
  }

  // Fails where the bytes end, the number takes more than 64 bits, or one byte more than it need, or is out
  // of range.
  bool take_any() {
    std::uint64_t number = 0;
    for (unsigned shift = 0; shift < 64 && at_ < bytes_.size(); shift += 7) {
      const auto byte = std::to_integer<std::uint64_t>(bytes_[at_++]);
      const std::uint64_t bits = byte & 0x7f;
      if (shift == 63 && bits > 1) return false;
      number |= bits << shift;
      if ((byte & 0x80) != 0) continue;
      if (bits == 0 && shift != 0) return false;
      if (next_ >= span_ || number >= span_ - next_) return false;
      next_ += number;
      put(next_++);
      return true;
    }
    return false;
  }

  std::span<const std::byte> bytes_;
  Index first_;
  std::uint64_t span_;
  std::size_t count_;
  void* out_;
  std::size_t at_ = 0;
  std::size_t to_ = 0;
  std::uint64_t next_ = 0;  // the least distance from `first` that the next index may have
};

template <typename Index>
bool unpack(const WireChunk& chunk, void* out) {
  switch (chunk.encoding) {
    case Encoding::dense:
      return unpack_dense<Index>(chunk, out);
    case Encoding::delta:
      return DeltaReader<Index>(chunk, out).all();
    case Encoding::bitmap:
      return unpack_bitmap<Index>(chunk, out);
    case Encoding::list:
      break;
  }
  switch (list_width(chunk.span)) {
    case 2:
      return unpack_list<Index, std::uint16_t>(chunk, out);
    case 4:
      return unpack_list<Index, std::uint32_t>(chunk, out);
    default:
      return unpack_list<Index, std::uint64_t>(chunk, out);
  }
}

bool unpack_form(const WireChunk& chunk, IndexType type, void* out) {
  return type == IndexType::u32 ? unpack<std::uint32_t>(chunk, out) : unpack<std::uint64_t>(chunk, out);
}

}  // namespace heddle::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle {

namespace kernels {
HWY_EXPORT(unpack_form);
}  // namespace kernels

bool unpack_indices_to(const WireChunk& chunk, IndexType type, void* out) {
  using namespace kernels;
  return HWY_DYNAMIC_DISPATCH(unpack_form)(chunk, type, out);
}

}  // namespace heddle
#endif
