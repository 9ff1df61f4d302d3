#include "sparse/message.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "sparse/wire.hpp"

namespace heddle {
namespace {

constexpr std::size_t kLength = sizeof(std::uint64_t);
constexpr std::uint64_t kHanded = std::uint64_t{1} << 63;  // in the length: HandedStreams, not chunks

Status no_memory(std::size_t bytes) {
  return Status(Code::out_of_memory,
                "no memory for " + std::to_string(bytes) + " bytes of a sparse stream that arrives");
}

// The chunks that `bytes` consist of, each within [first, end) and behind the one before. Adds up their
// entries.
Status check_chunks(std::span<const std::byte> bytes, const SparseView& like, std::uint64_t first,
                    std::uint64_t end, std::size_t* entries) {
  std::uint64_t next = first;
  while (!bytes.empty()) {
    Result<WireChunk> chunk = parse_chunk(bytes, like.dimension);
    if (!chunk.ok()) return chunk.status();
    if (chunk->value_type != like.value_type)
      return Status(Code::invalid_argument, std::string("a sparse chunk of ") +
                                                dtype_name(chunk->value_type) + " where " +
                                                dtype_name(like.value_type) + " is expected");
    if (chunk->first < next || chunk->first + chunk->span > end)
      return Status(Code::invalid_argument, "a sparse chunk of indices from " + std::to_string(chunk->first) +
                                                " on, which is not where it belongs");
    next = chunk->first + chunk->span;
    *entries += chunk->count;
    bytes = bytes.subspan(chunk->bytes);
  }
  return {};
}

}  // namespace

// ---- Sending

void StreamMessage::clear() {
  bytes_.assign(kLength, std::byte{0});
  flags_ = 0;
}

void StreamMessage::hand(const HandedStream& stream) {
  const auto* from = reinterpret_cast<const std::byte*>(&stream);
  bytes_.insert(bytes_.end(), from, from + sizeof stream);
  flags_ = kHanded;
}

void StreamMessage::append(const SparseView& view, std::uint64_t first, std::uint64_t end) {
  for (std::size_t begin = 0; begin < view.count; begin += kChunkEntries) {
    const std::size_t stop = std::min(view.count, begin + kChunkEntries);
    const std::uint64_t next = stop == view.count ? end : view.index(stop);
    const ChunkRange range{first, next - first, begin, stop};
    encode_chunk(view, range, smallest_encoding(view, range), bytes_);
    first = next;
  }
}

void StreamMessage::append_values(const SparseView& view) {
  const auto* from = static_cast<const std::byte*>(view.values);
  if (view.count > 0) bytes_.insert(bytes_.end(), from, from + view.count * dtype_size(view.value_type));
}

Status StreamMessage::send_values(Transport& transport, int peer, std::uint32_t tag) {
  start(transport, peer, false, true);
  wire_bytes_ = bytes_.size() - kLength;
  return transport.send(peer, tag, bytes_.data() + kLength, wire_bytes_, first_);
}

Status StreamMessage::recv_values(Transport& transport, int peer, std::uint32_t tag, std::byte* values,
                                  std::size_t bytes) {
  start(transport, peer, true, true);
  wire_bytes_ = bytes;
  return transport.recv(peer, tag, values, bytes, first_);
}

void StreamMessage::start(Transport& transport, int peer, bool receives, bool values_alone) {
  transport_ = &transport;
  peer_ = peer;
  receives_ = receives;
  values_alone_ = values_alone;
  second_open_ = false;
  first_ = Ticket{};
  second_ = Ticket{};
}

Status StreamMessage::send(Transport& transport, int peer, std::uint32_t tag) {
  start(transport, peer, false, false);
  const std::uint64_t length = (bytes_.size() - kLength) | flags_;
  std::memcpy(bytes_.data(), &length, kLength);
  if (bytes_.size() < kFirstMessage) bytes_.resize(kFirstMessage);
  wire_bytes_ = bytes_.size();
  second_open_ = bytes_.size() > kFirstMessage;
  HEDDLE_TRY(transport.send(peer, tag, bytes_.data(), kFirstMessage, first_));
  if (!second_open_) return {};
  return transport.send(peer, tag + kStreamLanes, bytes_.data() + kFirstMessage,
                        bytes_.size() - kFirstMessage, second_);
}

// ---- Receiving

Status StreamMessage::recv(Transport& transport, int peer, std::uint32_t tag, std::size_t most_bytes) {
  start(transport, peer, true, false);
  tag_ = tag;
  most_bytes_ = most_bytes;
  if (!buffer_.grow(kFirstMessage)) return no_memory(kFirstMessage);
  return transport.recv(peer, tag, buffer_.data(), kFirstMessage, first_);
}

Status StreamMessage::move(bool* done) {
  *done = false;
  if (!first_.done) return {};
  if (receives_ && !values_alone_ && !second_open_) {
    const std::uint64_t length = received_bytes();
    if (length > most_bytes_)
      return Status(Code::internal, "rank " + std::to_string(peer_) + " sends " + std::to_string(length) +
                                        " bytes of a sparse stream, but there cannot be more than " +
                                        std::to_string(most_bytes_));
    wire_bytes_ = std::max<std::size_t>(kFirstMessage, kLength + length);
    if (wire_bytes_ > kFirstMessage) {
      if (!buffer_.grow(wire_bytes_, kFirstMessage)) return no_memory(wire_bytes_);
      HEDDLE_TRY(transport_->recv(peer_, tag_ + kStreamLanes, buffer_.data() + kFirstMessage,
                                  wire_bytes_ - kFirstMessage, second_));
      second_open_ = true;
    }
  }
  *done = !second_open_ || second_.done;
  return {};
}

void StreamMessage::cancel() {
  if (transport_ == nullptr) return;  // memory was missing before anything was sent
  if (!first_.done) transport_->cancel(first_);
  if (second_open_ && !second_.done) transport_->cancel(second_);
}

std::uint64_t StreamMessage::received_bytes() const {
  std::uint64_t length = 0;
  std::memcpy(&length, buffer_.data(), kLength);
  return length & ~kHanded;
}

bool StreamMessage::is_handed() const {
  std::uint64_t length = 0;
  std::memcpy(&length, buffer_.data(), kLength);
  return (length & kHanded) != 0;
}

Result<std::vector<HandedStream>> StreamMessage::handed() const {
  const std::uint64_t bytes = received_bytes();
  if (bytes % sizeof(HandedStream) != 0)
    return Status(Code::internal, "rank " + std::to_string(peer_) + " hands over " + std::to_string(bytes) +
                                      " bytes, which are no streams");
  std::vector<HandedStream> streams(bytes / sizeof(HandedStream));
  if (bytes > 0) std::memcpy(streams.data(), buffer_.data() + kLength, bytes);
  return streams;
}

Status StreamMessage::wrong_bytes(const Status& what) const {
  return Status(Code::internal, "from rank " + std::to_string(peer_) + ": " + what.message());
}

Result<StreamMessage::Received> StreamMessage::unpack(const SparseView& like, std::uint64_t first,
                                                      std::uint64_t end, StoragePool& pool) const {
  std::span<const std::byte> bytes(buffer_.data() + kLength, received_bytes());
  std::size_t entries = 0;
  if (const Status checked = check_chunks(bytes, like, first, end, &entries); !checked.ok())
    return wrong_bytes(checked);
  Received received{pool.take(entries, like.index_type, like.value_type), like};
  if (!received.storage)
    return no_memory(entries * (index_size(like.index_type) + dtype_size(like.value_type)));
  std::byte* indices = received.storage->indices.data();
  std::byte* values = received.storage->values.data();
  for (; !bytes.empty();) {
    const WireChunk chunk = parse_chunk(bytes, like.dimension).value();
    if (const Status read = unpack_indices(chunk, like.index_type, indices); !read.ok())
      return wrong_bytes(read);
    std::memcpy(values, chunk.values.data(), chunk.values.size());
    indices += chunk.count * index_size(like.index_type);
    values += chunk.values.size();
    bytes = bytes.subspan(chunk.bytes);
  }
  received.view.count = entries;
  received.view.indices = received.storage->indices.data();
  received.view.values = received.storage->values.data();
  return received;
}

}  // namespace heddle
