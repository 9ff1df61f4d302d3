#include "sparse/index_codec.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "sparse/cursor.hpp"

namespace heddle {
namespace {

constexpr std::uint64_t kContinued = 0x8080808080808080;  // the bit of each byte of a number that has more

// ---- Writing

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

template <typename Index>
void pack_delta(const SparseView& view, const ChunkRange& range, std::span<std::byte> out) {
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
    } else if (any < (Index{1} << 28) && room >= 4 * Gaps<Index>::kBlock) {
      for (std::size_t k = 0; k < count; ++k)
        to = write_short(static_cast<std::uint32_t>(gaps[k]), to);
    } else {
      for (std::size_t k = 0; k < count; ++k)
        to = write_any(gaps[k], to);
    }
  }
}

template <typename Index>
void pack_bitmap(const SparseView& view, const ChunkRange& range, std::span<std::byte> out) {
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
}

template <typename Index, typename Place>
void pack_list(const SparseView& view, const ChunkRange& range, std::span<std::byte> out) {
  const auto first = static_cast<Index>(range.first);
  for (std::size_t i = range.begin; i < range.end; ++i)
    store_at(out.data(), i - range.begin,
             static_cast<Place>(static_cast<Index>(load_at<Index>(view.indices, i) - first)));
}

template <typename Index>
void pack(const SparseView& view, const ChunkRange& range, Encoding encoding, std::span<std::byte> out) {
  switch (encoding) {
    case Encoding::dense:
      return;
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

// ---- Reading

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
    // Eight of the shortest numbers, or four that lie in eight bytes and hence are of 35 bits at most: their sum
    // is no concern below 2^63.
    while (span_ <= std::uint64_t{1} << 63 && bytes_.size() - at_ >= 8 && count_ - to_ >= 8) {
      const auto word = load_at<std::uint64_t>(bytes_.data() + at_, 0);
      const std::uint64_t ends = ~word & kContinued;
      if (ends == kContinued) {
        take_eight(word);
      } else if (std::popcount(ends) >= 4) {
        if (!take_four(word, ends)) return false;
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

  bool take_four(std::uint64_t word, std::uint64_t ends) {
    unsigned begin = 0;
    bool superfluous = false;
    for (int k = 0; k < 4; ++k) {
      const auto end = static_cast<unsigned>(std::countr_zero(ends)) + 1;  // in bits
      ends &= ends - 1;
      const std::uint64_t groups = (word << (64 - end)) >> (64 - end) >> begin;
      superfluous |= (end - begin > 8) & (groups >> (end - begin - 8) == 0);
      next_ += (groups & 0x7f) | (groups >> 1 & 0x3f80) | (groups >> 2 & 0x1fc000) |
               (groups >> 3 & 0xfe00000) | (groups >> 4 & 0x7f0000000);
      put(next_++);
      begin = end;
    }
    at_ += begin / 8;
    return !superfluous;
  }

  // Fails where the bytes end, the number takes more than 64 bits, or one byte more than it need, or is out of range.
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

}  // namespace

std::uint64_t delta_bytes(const SparseView& view, const ChunkRange& range) {
  return view.index_type == IndexType::u32 ? count_delta_bytes<std::uint32_t>(view, range)
                                           : count_delta_bytes<std::uint64_t>(view, range);
}

void pack_indices(const SparseView& view, const ChunkRange& range, Encoding encoding,
                  std::span<std::byte> to) {
  if (view.index_type == IndexType::u32) {
    pack<std::uint32_t>(view, range, encoding, to);
  } else {
    pack<std::uint64_t>(view, range, encoding, to);
  }
}

bool unpack_indices_to(const WireChunk& chunk, IndexType type, void* out) {
  return type == IndexType::u32 ? unpack<std::uint32_t>(chunk, out) : unpack<std::uint64_t>(chunk, out);
}

}  // namespace heddle
