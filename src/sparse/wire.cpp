#include "sparse/wire.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <string>

namespace heddle {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the wire is little-endian, and memory is copied to it");

constexpr std::uint16_t kMagic = 0x5348;  // "HS"
constexpr std::uint8_t kVersion = 1;
constexpr std::array kValueTypes = {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i32, DType::i64};
constexpr Encoding kEncodings[] = {Encoding::dense, Encoding::list, Encoding::delta, Encoding::bitmap};

struct Header {
  std::uint16_t magic;
  std::uint8_t version;
  std::uint8_t encoding;
  std::uint8_t value_type;  // place in kValueTypes
  std::uint8_t width;       // of an index in a list: 2, 4 or 8 bytes; else 0
  std::uint16_t reserved;
  std::uint64_t first;
  std::uint64_t span;
  std::uint64_t count;
  std::uint64_t index_bytes;
};
static_assert(sizeof(Header) == kChunkHeader);

Status bad(const std::string& what) {
  return Status(Code::invalid_argument, "a damaged sparse chunk: " + what);
}

constexpr std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + 7) / 8 * 8;
}

std::uint8_t list_width(std::uint64_t span) {
  return span <= 0x10000 ? 2 : span <= 0x100000000 ? 4 : 8;
}

std::uint64_t bitmap_bytes(std::uint64_t span) {
  return span / 8 + (span % 8 != 0 ? 1 : 0);
}

// Bytes of a number in groups of seven bits (LEB128).
std::size_t varint_bytes(std::uint64_t number) {
  return (static_cast<std::size_t>(std::bit_width(number | 1)) + 6) / 7;
}

// What is written for entry i of a delta chunk: the indices that lie between it and the one before.
std::uint64_t gap(const SparseView& view, const ChunkRange& range, std::size_t i) {
  return i == range.begin ? view.index(i) - range.first : view.index(i) - view.index(i - 1) - 1;
}

// Without padding. Nothing where it does not fit.
std::optional<std::uint64_t> index_bytes(const SparseView& view, const ChunkRange& range, Encoding encoding) {
  const std::uint64_t count = range.end - range.begin;
  switch (encoding) {
    case Encoding::dense:
      return 0;
    case Encoding::list:
      return count * list_width(range.span);
    case Encoding::bitmap:
      return bitmap_bytes(range.span);
    case Encoding::delta: {
      std::uint64_t bytes = 0;
      for (std::size_t i = range.begin; i < range.end; ++i)
        bytes += varint_bytes(gap(view, range, i));
      return bytes;
    }
  }
  return std::nullopt;
}

// The next number, or nothing where the bytes end, it takes more than 64 bits, or one byte more than it need.
std::optional<std::uint64_t> read_varint(std::span<const std::byte> bytes, std::size_t& at) {
  std::uint64_t number = 0;
  for (unsigned shift = 0; shift < 64 && at < bytes.size(); shift += 7) {
    const auto byte = std::to_integer<std::uint64_t>(bytes[at++]);
    const std::uint64_t bits = byte & 0x7f;
    if (shift == 63 && bits > 1) return std::nullopt;
    number |= bits << shift;
    if ((byte & 0x80) != 0) continue;
    if (bits == 0 && shift != 0) return std::nullopt;
    return number;
  }
  return std::nullopt;
}

std::uint64_t read_index(std::span<const std::byte> bytes, std::size_t i, std::size_t width) {
  std::uint64_t index = 0;
  std::memcpy(&index, bytes.data() + i * width, width);
  return index;
}

// Calls use(distance from `first`) for each index; false when they do not rise strictly within the span or the bytes do not
// hold as many as they should.
template <typename Use>
bool for_each_index(const WireChunk& chunk, Use use) {
  const std::span<const std::byte> bytes = chunk.indices;
  std::uint64_t next = 0;  // the least that the next index may be
  if (chunk.encoding == Encoding::bitmap) {
    std::size_t found = 0;
    for (std::size_t k = 0; k < bytes.size(); ++k) {
      for (auto bits = std::to_integer<unsigned>(bytes[k]); bits != 0; bits &= bits - 1, ++found) {
        const std::uint64_t index = std::uint64_t{k} * 8 + static_cast<unsigned>(std::countr_zero(bits));
        if (index >= chunk.span) return false;
        use(index);
      }
    }
    return found == chunk.count;
  }
  std::size_t at = 0;
  const std::size_t width = list_width(chunk.span);
  for (std::size_t i = 0; i < chunk.count; ++i) {
    std::uint64_t index = 0;
    if (chunk.encoding == Encoding::list) {
      index = read_index(bytes, i, width);
      if (index < next) return false;
    } else {
      const std::optional<std::uint64_t> distance = read_varint(bytes, at);
      if (!distance || *distance > UINT64_MAX - next) return false;
      index = next + *distance;
    }
    if (index >= chunk.span) return false;
    use(index);
    next = index + 1;
  }
  return chunk.encoding == Encoding::list || at == bytes.size();
}

void append(std::vector<std::byte>& out, const void* data, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  out.insert(out.end(), from, from + bytes);
}

void write_indices(const SparseView& view, const ChunkRange& range, Encoding encoding,
                   std::vector<std::byte>& out) {
  const std::size_t start = out.size();
  if (encoding == Encoding::bitmap) {
    out.resize(start + bitmap_bytes(range.span));
    for (std::size_t i = range.begin; i < range.end; ++i) {
      const std::uint64_t at = view.index(i) - range.first;
      out[start + at / 8] |= std::byte{1} << (at % 8);
    }
    return;
  }
  const std::size_t width = list_width(range.span);
  for (std::size_t i = range.begin; i < range.end; ++i) {
    if (encoding == Encoding::list) {
      const std::uint64_t at = view.index(i) - range.first;
      append(out, &at, width);
      continue;
    }
    std::uint64_t left = gap(view, range, i);
    for (; left >= 0x80; left >>= 7)
      out.push_back(static_cast<std::byte>(left | 0x80));
    out.push_back(static_cast<std::byte>(left));
  }
}

Status check_header(const Header& h, std::uint64_t dimension) {
  if (h.magic != kMagic) return bad("it does not begin like one");
  if (h.version != kVersion)
    return bad("version " + std::to_string(h.version) + ", here " + std::to_string(kVersion));
  if (h.encoding >= std::size(kEncodings)) return bad("unknown form " + std::to_string(h.encoding));
  if (h.value_type >= kValueTypes.size())
    return bad("unknown type of values " + std::to_string(h.value_type));
  if (h.reserved != 0) return bad("bytes 6 and 7 are not 0");
  if (h.first > dimension || h.span > dimension - h.first)
    return bad(std::to_string(h.span) + " indices from " + std::to_string(h.first) +
               " on, but the dimension is " + std::to_string(dimension));
  if (h.count > h.span)
    return bad(std::to_string(h.count) + " entries in " + std::to_string(h.span) + " indices");
  const auto encoding = static_cast<Encoding>(h.encoding);
  if (h.width != (encoding == Encoding::list ? list_width(h.span) : 0))
    return bad("a wrong width of its indices");
  const bool fits = encoding == Encoding::dense    ? h.index_bytes == 0 && h.count == h.span
                    : encoding == Encoding::bitmap ? h.index_bytes == bitmap_bytes(h.span)
                    : encoding == Encoding::list
                        ? h.index_bytes / h.width == h.count && h.index_bytes % h.width == 0
                        : h.index_bytes >= h.count && h.index_bytes / 10 <= h.count;
  return fits ? Status()
              : bad(std::to_string(h.index_bytes) + " bytes of indices for " + std::to_string(h.count) +
                    " entries");
}

}  // namespace

const char* encoding_name(Encoding encoding) {
  static constexpr const char* kNames[] = {"dense", "list", "delta", "bitmap"};
  return kNames[static_cast<std::size_t>(encoding)];
}

std::size_t encoded_bytes(const SparseView& view, const ChunkRange& range, Encoding encoding) {
  const std::uint64_t values = range.end - range.begin;
  if (encoding == Encoding::dense && values != range.span) return SIZE_MAX;
  const std::size_t width = dtype_size(view.value_type);
  const std::optional<std::uint64_t> indices = index_bytes(view, range, encoding);
  constexpr std::uint64_t kMost = SIZE_MAX / 4;
  if (!indices || *indices > kMost || values > kMost / width) return SIZE_MAX;
  return kChunkHeader + padded(*indices) + padded(values * width);
}

Encoding smallest_encoding(const SparseView& view, const ChunkRange& range) {
  Encoding best = Encoding::dense;
  std::size_t least = encoded_bytes(view, range, best);
  for (const Encoding encoding : kEncodings) {
    const std::size_t bytes = encoded_bytes(view, range, encoding);
    if (bytes >= least) continue;
    least = bytes;
    best = encoding;
  }
  return best;
}

void encode_chunk(const SparseView& view, const ChunkRange& range, Encoding encoding,
                  std::vector<std::byte>& out) {
  const std::size_t width = dtype_size(view.value_type);
  const std::size_t start = out.size();
  const std::size_t entries = range.end - range.begin;
  Header h{};
  h.magic = kMagic;
  h.version = kVersion;
  h.encoding = static_cast<std::uint8_t>(encoding);
  while (kValueTypes[h.value_type] != view.value_type)
    ++h.value_type;
  h.width = encoding == Encoding::list ? list_width(range.span) : 0;
  h.first = range.first;
  h.span = range.span;
  h.count = encoding == Encoding::dense ? range.span : entries;
  h.index_bytes = *index_bytes(view, range, encoding);
  append(out, &h, sizeof h);
  const auto* values = static_cast<const std::byte*>(view.values);
  if (encoding == Encoding::dense) {
    out.resize(out.size() + padded(range.span * width));
    for (std::size_t i = range.begin; i < range.end; ++i)
      std::memcpy(out.data() + start + kChunkHeader + (view.index(i) - range.first) * width,
                  values + i * width, width);
    return;
  }
  write_indices(view, range, encoding, out);
  out.resize(start + kChunkHeader + padded(h.index_bytes));
  if (entries > 0) append(out, values + range.begin * width, entries * width);
  out.resize(start + padded(out.size() - start));
}

Result<WireChunk> parse_chunk(std::span<const std::byte> bytes, std::uint64_t dimension) {
  Header h;
  if (bytes.size() < sizeof h) return bad("it ends in its header");
  std::memcpy(&h, bytes.data(), sizeof h);
  HEDDLE_TRY(check_header(h, dimension));
  WireChunk chunk;
  chunk.encoding = static_cast<Encoding>(h.encoding);
  chunk.value_type = kValueTypes[h.value_type];
  chunk.first = h.first;
  chunk.span = h.span;
  const std::uint64_t room = bytes.size() - sizeof h;
  const std::size_t width = dtype_size(chunk.value_type);
  if (h.index_bytes > room || padded(h.index_bytes) > room ||
      h.count > (room - padded(h.index_bytes)) / width ||
      padded(h.count * width) > room - padded(h.index_bytes)) {
    return bad("it ends before its " + std::to_string(h.count) + " entries do");
  }
  chunk.count = h.count;
  chunk.indices = bytes.subspan(sizeof h, h.index_bytes);
  chunk.values = bytes.subspan(sizeof h + padded(h.index_bytes), h.count * width);
  chunk.bytes = sizeof h + padded(h.index_bytes) + padded(h.count * width);
  if (chunk.encoding != Encoding::dense && !for_each_index(chunk, [](std::uint64_t) {}))
    return bad("its indices do not rise within their range");
  return chunk;
}

Status unpack_indices(const WireChunk& chunk, IndexType type, void* indices) {
  auto* out = static_cast<std::byte*>(indices);
  const auto put = [&](std::uint64_t at) {
    const std::uint64_t index = chunk.first + at;
    std::memcpy(out, &index, index_size(type));
    out += index_size(type);
  };
  if (chunk.encoding == Encoding::dense) {
    for (std::uint64_t i = 0; i < chunk.count; ++i)
      put(i);
    return {};
  }
  for_each_index(chunk, put);
  return {};
}

}  // namespace heddle
