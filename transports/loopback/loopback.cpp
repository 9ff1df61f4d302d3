#include "transports/loopback/loopback.hpp"

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace heddle {

// What one rank has received and is waiting for. Only one mailbox is ever locked at a time.
struct LoopbackHub::Mailbox {
  struct Message {
    int from;
    std::uint32_t tag;
    const void* data;  // the sender's buffer, or `copy`
    std::size_t bytes;
    std::vector<std::byte> copy;  // eager: the sender is gone already
    std::uint64_t send;           // rendezvous: the sender's number for it; 0 for eager
    std::uint32_t delay;          // polls until it can be seen
  };

  struct PostedRecv {
    int from;
    std::uint32_t tag;
    void* data;
    std::size_t bytes;
    Ticket* ticket;
  };

  std::mutex mutex;
  std::list<Message> arrived;
  std::list<PostedRecv> posted;
  std::vector<std::uint64_t> sends_done;  // this rank's own rendezvous sends that were taken
  std::mt19937_64 random;
};

class LoopbackTransport final : public Transport {
 public:
  LoopbackTransport(LoopbackHub& hub, int rank) : hub_(hub), rank_(rank) {
    capabilities_.name = "loopback";
    capabilities_.cost = {500, 0.1};
  }

  const TransportCapabilities& capabilities() const override { return capabilities_; }
  Status send(int peer, std::uint32_t tag, const void* data, std::size_t bytes, Ticket& ticket) override;
  Status recv(int peer, std::uint32_t tag, void* data, std::size_t bytes, Ticket& ticket) override;
  Status progress() override;
  void cancel(Ticket& ticket) override;
  bool peer_is_gone(int) const override { return false; }

 private:
  using Message = LoopbackHub::Mailbox::Message;
  using PostedRecv = LoopbackHub::Mailbox::PostedRecv;

  LoopbackHub::Mailbox& box(int rank) const { return hub_.mailboxes_[static_cast<std::size_t>(rank)]; }
  std::optional<Message> take(LoopbackHub::Mailbox& mine, const PostedRecv& recv);

  LoopbackHub& hub_;
  int rank_;
  // Rendezvous sends by number. Receivers know the number only: the ticket may be gone when they answer.
  std::map<std::uint64_t, Ticket*> open_sends_;
  std::uint64_t last_send_ = 0;
  TransportCapabilities capabilities_;
};

LoopbackHub::LoopbackHub(int size, LoopbackOptions options)
    : size_(size),
      options_(options),
      mailboxes_(std::make_unique<Mailbox[]>(static_cast<std::size_t>(size))) {
  for (int rank = 0; rank < size; ++rank) {
    mailboxes_[static_cast<std::size_t>(rank)].random.seed(options.seed + static_cast<std::uint64_t>(rank));
  }
}

LoopbackHub::~LoopbackHub() = default;

std::unique_ptr<Transport> LoopbackHub::transport(int rank) {
  return std::make_unique<LoopbackTransport>(*this, rank);
}

Status LoopbackTransport::send(int peer, std::uint32_t tag, const void* data, std::size_t bytes,
                               Ticket& ticket) {
  const LoopbackOptions& options = hub_.options_;
  if (peer == options.dead_rank || rank_ == options.dead_rank) return {};
  Message message{rank_, tag, data, bytes, {}, 0, 0};
  if (rank_ == options.corrupt_rank && bytes > 0) --message.bytes;
  if (bytes <= options.eager_bytes) {
    const auto* first = static_cast<const std::byte*>(data);
    message.copy.assign(first, first + message.bytes);
    ticket.done = true;
  } else {
    message.send = ++last_send_;
    open_sends_.emplace(message.send, &ticket);
  }
  LoopbackHub::Mailbox& theirs = box(peer);
  const std::lock_guard lock(theirs.mutex);
  if (options.max_delay > 0)
    message.delay = static_cast<std::uint32_t>(theirs.random() % (options.max_delay + 1));
  theirs.arrived.push_back(std::move(message));
  return {};
}

Status LoopbackTransport::recv(int peer, std::uint32_t tag, void* data, std::size_t bytes, Ticket& ticket) {
  LoopbackHub::Mailbox& mine = box(rank_);
  const std::lock_guard lock(mine.mutex);
  mine.posted.push_back({peer, tag, data, bytes, &ticket});
  return {};
}

// The first message that matches, unless it is still on its way: later ones must not overtake it.
auto LoopbackTransport::take(LoopbackHub::Mailbox& mine, const PostedRecv& recv) -> std::optional<Message> {
  const auto found = std::find_if(mine.arrived.begin(), mine.arrived.end(),
                                  [&](const Message& m) { return m.from == recv.from && m.tag == recv.tag; });
  if (found == mine.arrived.end() || found->delay > 0) return std::nullopt;
  Message message = std::move(*found);
  mine.arrived.erase(found);
  return message;
}

Status LoopbackTransport::progress() {
  std::vector<std::pair<int, std::uint64_t>> taken;  // rendezvous sends of others that are finished now
  Status status;
  {
    LoopbackHub::Mailbox& mine = box(rank_);
    const std::lock_guard lock(mine.mutex);
    for (const std::uint64_t send : mine.sends_done) {
      const auto open = open_sends_.find(send);
      if (open == open_sends_.end()) continue;  // cancelled
      open->second->done = true;
      open_sends_.erase(open);
    }
    mine.sends_done.clear();
    for (Message& message : mine.arrived)
      message.delay -= message.delay > 0 ? 1 : 0;
    for (auto recv = mine.posted.begin(); recv != mine.posted.end();) {
      const std::optional<Message> message = take(mine, *recv);
      if (!message) {
        ++recv;
        continue;
      }
      if (message->bytes != recv->bytes) {
        status = different_length("rank " + std::to_string(message->from), message->bytes, recv->bytes);
        break;
      }
      const void* source = message->send != 0 ? message->data : message->copy.data();
      if (recv->bytes > 0) std::memcpy(recv->data, source, recv->bytes);
      recv->ticket->done = true;
      if (message->send != 0) taken.emplace_back(message->from, message->send);
      recv = mine.posted.erase(recv);
    }
  }
  for (const auto& [rank, send] : taken) {
    const std::lock_guard lock(box(rank).mutex);
    box(rank).sends_done.push_back(send);
  }
  return status;
}

void LoopbackTransport::cancel(Ticket& ticket) {
  {
    LoopbackHub::Mailbox& mine = box(rank_);
    const std::lock_guard lock(mine.mutex);
    mine.posted.remove_if([&](const PostedRecv& r) { return r.ticket == &ticket; });
  }
  const auto open = std::find_if(open_sends_.begin(), open_sends_.end(),
                                 [&](const auto& entry) { return entry.second == &ticket; });
  if (open == open_sends_.end()) return;
  const std::uint64_t send = open->first;
  open_sends_.erase(open);
  // It lies in one other mailbox; which one is not worth remembering for the sake of failures.
  for (int rank = 0; rank < hub_.size_; ++rank) {
    const std::lock_guard lock(box(rank).mutex);
    box(rank).arrived.remove_if([&](const Message& m) { return m.from == rank_ && m.send == send; });
  }
}

}  // namespace heddle
