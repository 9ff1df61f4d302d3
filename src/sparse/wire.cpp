#include "sparse/wire.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "sparse/index_codec.hpp"

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

// Without padding.
std::uint64_t index_bytes(const SparseView& view, const ChunkRange& range, Encoding encoding) {
  switch (encoding) {
    case Encoding::dense:
      break;
    case Encoding::list:
      return (range.end - range.begin) * list_width(range.span);
    case Encoding::bitmap:
      return bitmap_bytes(range.span);
    case Encoding::delta:
      return delta_bytes(view, range);
  }
  return 0;
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
  const std::uint64_t count = range.end - range.begin;
  if (encoding == Encoding::dense && count != range.span) return SIZE_MAX;
  const std::size_t width = dtype_size(view.value_type);
  const std::uint64_t indices = index_bytes(view, range, encoding);
  constexpr std::uint64_t kMost = SIZE_MAX / 4;
  if (indices > kMost || count > kMost / width) return SIZE_MAX;
  return kChunkHeader + padded(indices) + padded(count * width);
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
  h.width = encoding == Encoding::list ? static_cast<std::uint8_t>(list_width(range.span)) : 0;
  h.first = range.first;
  h.span = range.span;
  h.count = entries;
  const std::size_t room =
      encoding == Encoding::delta ? delta_bytes_at_most(view, range) : index_bytes(view, range, encoding);
  out.resize(start + kChunkHeader + room);
  h.index_bytes = pack_indices(view, range, encoding, std::span(out).subspan(start + kChunkHeader));
  std::memcpy(out.data() + start, &h, sizeof h);
  out.resize(start + kChunkHeader + padded(h.index_bytes));
  const auto* values = static_cast<const std::byte*>(view.values) + range.begin * width;
  if (entries > 0) out.insert(out.end(), values, values + entries * width);
  out.resize(start + kChunkHeader + padded(h.index_bytes) + padded(entries * width));
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
  return chunk;
}

Status unpack_indices(const WireChunk& chunk, IndexType type, void* out) {
  if (type == IndexType::u32 && chunk.first + chunk.span > std::uint64_t{1} << 32)
    return bad("indices that do not fit in 32 bits");
  if (!unpack_indices_to(chunk, type, out)) return bad("its indices do not rise within their range");
  return {};
}

}  // namespace heddle
