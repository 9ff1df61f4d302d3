#include "transports/shm/shm_transport.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/fifo.hpp"
#include "transports/shm/ring.hpp"

namespace heddle {
namespace {

using rings::Mark;
using rings::Ring;
using rings::RingHeader;

struct MessageHeader {
  std::uint32_t tag;
  std::uint32_t magic;
  std::uint64_t bytes;
};
constexpr std::uint32_t kMagic = 0x48444c31;

struct OpenSend {
  MessageHeader header{};
  const std::byte* data = nullptr;
  std::size_t sent = 0;
  bool header_sent = false;
  Ticket* ticket = nullptr;
};

struct OpenRecv {
  std::uint32_t tag = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  Ticket* ticket = nullptr;
};

// A message that came before its receive was opened.
struct Early {
  std::uint32_t tag = 0;
  std::vector<std::byte> bytes;
};

struct Peer {
  Ring out;
  Ring in;
  Fifo<OpenSend> sends;
  Fifo<OpenRecv> recvs;
  Fifo<Early> early;
  // The message at the head of `in`, once its header is read.
  std::optional<MessageHeader> current;
  std::byte* target = nullptr;      // where it goes
  Ticket* target_ticket = nullptr;  // null: into early_bytes, if anywhere
  bool unwanted = false;            // nobody is there to take it any more
  std::vector<std::byte> early_bytes;
  std::size_t received = 0;
  bool listed = false;  // among those that progress() looks at

  bool has_open() const { return !sends.empty() || expects(); }
  bool expects() const { return !recvs.empty() || current; }
  void take(const MessageHeader& header, std::byte* to, Ticket* ticket) {
    current = header;
    target = to;
    target_ticket = ticket;
    received = 0;
  }
};

// Of the ring from one member to another; from a member to itself, of its mark.
std::byte* place_of(std::byte* memory, const ShmTransportGeometry& geometry, int from, int to) {
  const std::size_t stride = sizeof(RingHeader) + geometry.ring_bytes();
  return memory + static_cast<std::size_t>(from * geometry.members + to) * stride;
}

class ShmTransport final : public Transport {
 public:
  ShmTransport(std::byte* memory, const ShmTransportGeometry& geometry, int member, std::vector<int> ranks,
               std::vector<std::optional<WatchedProcess>> processes, std::function<bool(int member)> is_gone);
  ~ShmTransport() override { leave({}); }

  const TransportCapabilities& capabilities() const override { return capabilities_; }
  Status send(int peer, std::uint32_t tag, const void* data, std::size_t bytes, Ticket& ticket) override;
  Status recv(int peer, std::uint32_t tag, void* data, std::size_t bytes, Ticket& ticket) override;
  Status progress() override;
  void cancel(Ticket& ticket) override;
  bool peer_is_gone(int peer) const override;
  void leave(const Departure& why) override { marks_[static_cast<std::size_t>(member_)].leave(why); }
  bool peer_has_left(int peer) const override { return mark_of(peer).has_left(); }
  Departure peer_left_for(int peer) const override { return mark_of(peer).why(); }
  std::uint64_t moved() const override;
  void tell_moved() override { marks_[static_cast<std::size_t>(member_)].tell_moved(); }
  std::uint64_t others_moved() const override;

 private:
  std::size_t member_of(int rank) const {
    return static_cast<std::size_t>(member_of_[static_cast<std::size_t>(rank)]);
  }
  const Mark& mark_of(int rank) const { return marks_[member_of(rank)]; }
  void list(std::size_t member);
  void push_sends(Peer& peer);
  Status pull(Peer& peer, int rank);
  Status begin_message(Peer& peer, int rank, bool* blocked);
  Status end_message(Peer& peer, int rank);

  std::vector<Peer> peers_;          // by member
  std::vector<std::size_t> listed_;  // members with whom something is open, or was at the last progress()
  std::vector<Mark> marks_;          // by member
  int member_;
  // Buffers that early messages have left: used again, so that a steady state allocates nothing.
  std::vector<std::vector<std::byte>> spare_;
  Status broken_;  // the first failure
  std::vector<int> ranks_;
  std::vector<std::optional<WatchedProcess>> processes_;  // by member
  std::function<bool(int member)> is_gone_;
  std::vector<int> member_of_;  // by rank
  TransportCapabilities capabilities_;
};

ShmTransport::ShmTransport(std::byte* memory, const ShmTransportGeometry& geometry, int member,
                           std::vector<int> ranks, std::vector<std::optional<WatchedProcess>> processes,
                           std::function<bool(int member)> is_gone)
    : member_(member),
      ranks_(std::move(ranks)),
      processes_(std::move(processes)),
      is_gone_(std::move(is_gone)) {
  capabilities_.name = "shm";
  capabilities_.cost = kShmMessageCost;
  const auto place = [&](int from, int to) { return place_of(memory, geometry, from, to); };
  const auto ring = [&](int from, int to) { return Ring(place(from, to), geometry.ring_bytes()); };
  peers_.reserve(static_cast<std::size_t>(geometry.members));
  listed_.reserve(static_cast<std::size_t>(geometry.members));
  for (int m = 0; m < geometry.members; ++m) {
    peers_.push_back(
        Peer{ring(member, m), ring(m, member), {}, {}, {}, {}, nullptr, nullptr, false, {}, 0, false});
    marks_.emplace_back(place(m, m));
  }
  member_of_.assign(static_cast<std::size_t>(*std::max_element(ranks_.begin(), ranks_.end())) + 1, -1);
  for (std::size_t m = 0; m < ranks_.size(); ++m)
    member_of_[static_cast<std::size_t>(ranks_[m])] = static_cast<int>(m);
}

Status ShmTransport::send(int rank, std::uint32_t tag, const void* data, std::size_t bytes, Ticket& ticket) {
  const std::size_t member = member_of(rank);
  Peer& peer = peers_[member];
  peer.sends.push({{tag, kMagic, bytes}, static_cast<const std::byte*>(data), 0, false, &ticket});
  if (peer.sends.size() == 1) push_sends(peer);
  if (!peer.sends.empty()) list(member);
  return {};
}

Status ShmTransport::recv(int rank, std::uint32_t tag, void* data, std::size_t bytes, Ticket& ticket) {
  const std::size_t member = member_of(rank);
  Peer& peer = peers_[member];
  for (std::size_t i = 0; i < peer.early.size(); ++i) {
    Early& early = peer.early[i];
    if (early.tag != tag) continue;
    if (early.bytes.size() != bytes)
      return different_length("rank " + std::to_string(rank), early.bytes.size(), bytes);
    if (bytes > 0) std::memcpy(data, early.bytes.data(), bytes);
    spare_.push_back(std::move(early.bytes));
    peer.early.erase(i);
    ticket.done = true;
    return {};
  }
  peer.recvs.push({tag, static_cast<std::byte*>(data), bytes, &ticket});
  list(member);
  return {};
}

// A rank of many has something open with few, and mostly with none: then a poll looks at nobody.
void ShmTransport::list(std::size_t member) {
  if (!std::exchange(peers_[member].listed, true)) listed_.push_back(member);
}

void ShmTransport::push_sends(Peer& peer) {
  bool wrote = false;
  while (!peer.sends.empty()) {
    OpenSend& s = peer.sends.front();
    if (!s.header_sent) {
      if (peer.out.room() < sizeof s.header) break;
      peer.out.put(&s.header, sizeof s.header);
      s.header_sent = true;
      wrote = true;
    }
    // In quarters of the ring at most, so that the receiver starts while the rest is copied.
    while (const std::size_t n =
               std::min({peer.out.room(), s.header.bytes - s.sent, std::size_t{16} * 1024})) {
      peer.out.put(s.data + s.sent, n);
      s.sent += n;
      peer.out.publish_written();
      wrote = false;
    }
    if (s.sent < s.header.bytes) break;
    s.ticket->done = true;
    peer.sends.pop();
  }
  if (wrote) peer.out.publish_written();
}

// Reads the next header and finds its receive. While nothing is expected from this peer at all the message
// stays in the ring, which holds the sender back; only a message that others must overtake is set aside.
Status ShmTransport::begin_message(Peer& peer, int rank, bool* blocked) {
  *blocked = true;
  if (peer.recvs.empty() || peer.in.available() < sizeof(MessageHeader)) return {};
  MessageHeader header;
  peer.in.get(&header, sizeof header);
  if (header.magic != kMagic)
    return Status(Code::internal, "the ring from rank " + std::to_string(rank) + " is damaged");
  *blocked = false;
  for (std::size_t i = 0; i < peer.recvs.size(); ++i) {
    const OpenRecv r = peer.recvs[i];
    if (r.tag != header.tag) continue;
    if (r.bytes != header.bytes)
      return different_length("rank " + std::to_string(rank), header.bytes, r.bytes);
    peer.take(header, r.data, r.ticket);
    peer.recvs.erase(i);
    return {};
  }
  if (peer.early_bytes.capacity() == 0 && !spare_.empty()) {
    peer.early_bytes = std::move(spare_.back());
    spare_.pop_back();
  }
  try {
    peer.early_bytes.resize(header.bytes);
  } catch (const std::exception&) {
    return Status(Code::out_of_memory, "no memory for " + std::to_string(header.bytes) + " bytes that rank " +
                                           std::to_string(rank) + " has sent");
  }
  peer.take(header, peer.early_bytes.data(), nullptr);
  return {};
}

Status ShmTransport::end_message(Peer& peer, int rank) {
  const MessageHeader header = *peer.current;
  peer.current.reset();
  if (std::exchange(peer.unwanted, false)) return {};
  if (peer.target_ticket != nullptr) {
    peer.target_ticket->done = true;
    return {};
  }
  // Its receive may have been opened while it was coming in.
  for (std::size_t i = 0; i < peer.recvs.size(); ++i) {
    OpenRecv& r = peer.recvs[i];
    if (r.tag != header.tag) continue;
    if (r.bytes != header.bytes)
      return different_length("rank " + std::to_string(rank), header.bytes, r.bytes);
    if (header.bytes > 0) std::memcpy(r.data, peer.early_bytes.data(), header.bytes);
    r.ticket->done = true;
    peer.recvs.erase(i);
    return {};
  }
  peer.early.push({header.tag, std::move(peer.early_bytes)});
  peer.early_bytes.clear();
  return {};
}

Status ShmTransport::pull(Peer& peer, int rank) {
  while (true) {
    if (!peer.current) {
      bool blocked = false;
      HEDDLE_TRY(begin_message(peer, rank, &blocked));
      if (blocked) return {};
    }
    while (const std::size_t n = std::min(peer.in.available(), peer.current->bytes - peer.received)) {
      if (peer.unwanted) {
        peer.in.skip(n);
      } else {
        peer.in.get(peer.target + peer.received, n);
      }
      peer.received += n;
      peer.in.publish_read();
    }
    if (peer.received < peer.current->bytes) return {};
    peer.in.publish_read();
    HEDDLE_TRY(end_message(peer, rank));
  }
}

// After a failure nothing is known of what lies in the rings.
Status ShmTransport::progress() {
  if (!broken_.ok()) return broken_;
  for (std::size_t i = 0; i < listed_.size();) {
    const std::size_t member = listed_[i];
    Peer& peer = peers_[member];
    // Not as soon as it is through: the next message is mostly for the same one.
    if (!peer.has_open()) {
      peer.listed = false;
      listed_[i] = listed_.back();
      listed_.pop_back();
      continue;
    }
    if (!peer.sends.empty()) push_sends(peer);
    if (peer.expects()) {
      broken_ = pull(peer, ranks_[member]);
      if (!broken_.ok()) return broken_;
    }
    ++i;
  }
  return {};
}

std::uint64_t ShmTransport::moved() const {
  std::uint64_t bytes = 0;
  for (const Peer& peer : peers_)
    bytes += peer.in.position() + peer.out.position();
  return bytes;
}

std::uint64_t ShmTransport::others_moved() const {
  std::uint64_t told = 0;
  for (std::size_t m = 0; m < marks_.size(); ++m) {
    if (m != static_cast<std::size_t>(member_)) told += marks_[m].moved();
  }
  return told;
}

// A send that is partly written cannot be taken back: its ring is unusable afterwards, as is the
// communicator.
void ShmTransport::cancel(Ticket& ticket) {
  for (Peer& peer : peers_) {
    for (std::size_t i = 0; i < peer.sends.size(); ++i) {
      if (peer.sends[i].ticket == &ticket) return peer.sends.erase(i);
    }
    for (std::size_t i = 0; i < peer.recvs.size(); ++i) {
      if (peer.recvs[i].ticket == &ticket) return peer.recvs.erase(i);
    }
    if (peer.current && peer.target_ticket == &ticket) {
      peer.target_ticket = nullptr;
      peer.unwanted = true;
    }
  }
}

bool ShmTransport::peer_is_gone(int rank) const {
  const std::size_t member = member_of(rank);
  const std::optional<WatchedProcess>& process = processes_[member];
  return process ? process->is_gone() : is_gone_ && is_gone_(static_cast<int>(member));
}

}  // namespace

std::size_t ShmTransportGeometry::ring_bytes() const {
  return members <= 16 ? 64 * 1024 : 8 * 1024;
}

std::size_t ShmTransportGeometry::bytes() const {
  const auto m = static_cast<std::size_t>(members);
  return m * m * (sizeof(RingHeader) + ring_bytes());
}

std::unique_ptr<Transport> make_shm_transport(std::byte* memory, const ShmTransportGeometry& geometry,
                                              int member, std::vector<int> ranks,
                                              std::vector<std::optional<WatchedProcess>> processes,
                                              std::function<bool(int member)> is_gone) {
  return std::make_unique<ShmTransport>(memory, geometry, member, std::move(ranks), std::move(processes),
                                        std::move(is_gone));
}

void leave_shm_transport(std::byte* memory, const ShmTransportGeometry& geometry, int member) {
  Mark(place_of(memory, geometry, member, member)).leave({});
}

}  // namespace heddle
