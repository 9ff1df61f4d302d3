#include "transports/verbs/verbs_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <thread>

namespace heddle::verbs {
namespace {

constexpr std::size_t kSendSlots = 64;
// Of 64 bytes or so, for 819 connections; with more of them the queue grows.
constexpr int kFirstCompletions = 32768;

}  // namespace

VerbsTransport::VerbsTransport(Device& device, Datagrams& datagrams, int rank, const Deadlines& deadlines)
    : device_(device), datagrams_(datagrams), rank_(rank), deadlines_(deadlines), registrations_(device) {
  capabilities_.name = "verbs";
  capabilities_.cost = {2000, 0.1};
}

Result<std::unique_ptr<Transport>> VerbsTransport::make(Device& device, Datagrams& datagrams, int rank,
                                                        const std::vector<std::string>& addresses,
                                                        const Deadlines& deadlines) {
  std::unique_ptr<VerbsTransport> made(new VerbsTransport(device, datagrams, rank, deadlines));
  HEDDLE_TRY(made->learn(addresses));
  HEDDLE_TRY(made->prepare());
  return std::unique_ptr<Transport>(std::move(made));
}

Status VerbsTransport::learn(const std::vector<std::string>& addresses) {
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    Peer& peer = *peers_.emplace_back(std::make_unique<Peer>());
    peer.rank = static_cast<int>(rank);
    if (addresses[rank].empty() || peer.rank == rank_) continue;
    const std::optional<Address> address = parse_address(addresses[rank]);
    if (!address)
      return Status(Code::internal, fmt::format("the address of rank {} for verbs is damaged", rank));
    if (address->link != device_.gid().kind)
      return Status(Code::unsupported,
                    fmt::format("rank {} is reached by {}, and this rank's {} is {}: HEDDLE_VERBS_DEVICE and "
                                "HEDDLE_VERBS_GID choose others",
                                rank, link_kind_name(address->link), device_.name(),
                                link_kind_name(device_.gid().kind)));
    peer.address = *address;
    peer.reachable = true;
  }
  return {};
}

Result<VerbsTransport::Block> VerbsTransport::allocate(std::size_t slots, const char* what) const {
  Block block;
  block.memory = Pages(slots * kSlotBytes);
  if (block.memory.data() == nullptr)
    return Status(Code::out_of_memory,
                  fmt::format("{}: no memory of {} bytes {}", device_.name(), slots * kSlotBytes, what));
  block.registered.reset(
      ibv_reg_mr(device_.domain(), block.memory.data(), block.memory.size(), IBV_ACCESS_LOCAL_WRITE));
  if (block.registered == nullptr)
    return registration_error(fmt::format("{}: {} bytes {}", device_.name(), block.memory.size(), what),
                              errno);
  return block;
}

Status VerbsTransport::prepare_completions(std::size_t reachable) {
  const auto most = static_cast<std::size_t>(std::min(kFirstCompletions, device_.limits().max_cqe));
  completions_room_ = static_cast<int>(std::min(reachable * kCompletionsPerPeer, most));
  Result<CompletionsPtr> completions = device_.make_completions(completions_room_);
  HEDDLE_TRY(completions.status());
  completions_ = std::move(completions).value();
  return {};
}

// Room for every peer from the beginning, or for as many as the device allows, since not every device can
// make it larger; receives come with connections.
Status VerbsTransport::prepare() {
  const auto reachable = static_cast<std::size_t>(std::max<std::ptrdiff_t>(
      std::count_if(peers_.begin(), peers_.end(), [](const auto& p) { return p->reachable; }), 1));
  HEDDLE_TRY(prepare_completions(reachable));
  const auto most = static_cast<std::size_t>(std::max(device_.limits().max_srq_wr, 1));
  receives_room_ = std::min(reachable * kCreditsPerPeer, most);
  ibv_srq_init_attr shared{};
  shared.attr = {.max_wr = static_cast<std::uint32_t>(receives_room_), .max_sge = 1, .srq_limit = 0};
  shared_receives_.reset(ibv_create_srq(device_.domain(), &shared));
  if (shared_receives_ == nullptr) return registration_error(device_.name() + ": ibv_create_srq", errno);

  Result<Block> slots = allocate(kSendSlots, "to send from");
  HEDDLE_TRY(slots.status());
  send_slots_ = std::move(slots).value();
  for (std::size_t slot = 0; slot < kSendSlots; ++slot)
    free_slots_.push_back(static_cast<std::int32_t>(slot));
  return {};
}

Status VerbsTransport::check_peer(int peer) const {
  if (!failed_.ok()) return failed_;
  if (peer < 0 || static_cast<std::size_t>(peer) >= peers_.size() ||
      !peers_[static_cast<std::size_t>(peer)]->reachable)
    return Status(Code::internal, fmt::format("rank {} is not reached by verbs", peer));
  return {};
}

Status VerbsTransport::send(int peer, std::uint32_t tag, const void* data, std::size_t bytes,
                            Ticket& ticket) {
  HEDDLE_TRY(check_peer(peer));
  Peer& to = at(peer);
  HEDDLE_TRY(lost_if_left(to));
  to.queue.push({tag, static_cast<const std::byte*>(data), bytes, &ticket});
  if (!to.handshake.begun()) return begin(to);
  return to.handshake.is_open() ? move(to) : Status();
}

Status VerbsTransport::recv(int peer, std::uint32_t tag, void* data, std::size_t bytes, Ticket& ticket) {
  HEDDLE_TRY(check_peer(peer));
  Peer& from = at(peer);
  const Receive receive{tag, static_cast<std::byte*>(data), bytes, &ticket};
  for (std::size_t i = 0; i < from.arrivals.size(); ++i) {
    if (from.arrivals[i].tag != tag) continue;
    Arrival arrival = std::move(from.arrivals[i]);
    from.arrivals.erase(i);
    if (arrival.announced) HEDDLE_TRY(lost_if_left(from));
    HEDDLE_TRY(give(receive, from, arrival, arrival.content.data()));
    return move(from);
  }
  HEDDLE_TRY(lost_if_left(from));
  from.receives.push_back(receive);
  // The one who waits finds out as well whether the other one is there.
  return from.handshake.begun() ? Status() : begin(from);
}

Status VerbsTransport::progress() {
  if (!failed_.ok()) return failed_;
  HEDDLE_TRY(poll_completions());
  constexpr unsigned kLookEvery = 16;
  if (++rounds_ % kLookEvery == 0 || connecting_ > 0) HEDDLE_TRY(look_around());
  return {};
}

// What came before the notice was asked for brings none: it is looked for after that.
bool VerbsTransport::arm() {
  if (!failed_.ok() || connecting_ > 0) return false;
  if (!device_.ask_for_notice({completions_.get(), datagrams_.completions()}).ok()) return false;
  const std::uint64_t before = completed_;
  // What fails here is told by the next progress().
  return poll_completions().ok() && look_around().ok() && completed_ == before && connecting_ == 0;
}

void VerbsTransport::cancel(Ticket& ticket) {
  for (const auto& each : peers_) {
    Peer& peer = *each;
    std::erase_if(peer.receives, [&](const Receive& r) { return r.ticket == &ticket; });
    for (std::size_t i = 0; i < peer.queue.size();) {
      if (peer.queue[i].ticket == &ticket) {
        peer.queue.erase(i);
      } else {
        ++i;
      }
    }
    bool under_way = false;
    for (std::size_t i = 0; i < peer.long_sends.size(); ++i) {
      if (peer.long_sends[i].ticket != &ticket) continue;
      if (peer.long_sends[i].in_flight > 0) {
        under_way = true;
        break_connection(peer);
        for (Work& work : works_) {
          if (work.peer == peer.rank && work.kind == Work::Kind::write && work.send == peer.long_sends[i].id)
            registrations_.give_back(work.lease);
        }
      }
      peer.long_sends.erase(peer.long_sends.begin() + static_cast<std::ptrdiff_t>(i--));
    }
    for (std::size_t i = 0; i < peer.long_receives.size(); ++i) {
      LongReceive& receive = peer.long_receives[i];
      if (receive.ticket != &ticket) continue;
      under_way = under_way || !receive.open.empty();
      // The queue pair goes first: what still comes in meets nothing.
      if (under_way) break_connection(peer);
      for (std::size_t j = 0; j < receive.open.size(); ++j)
        registrations_.give_back(receive.open[j].lease);
      peer.long_receives.erase(peer.long_receives.begin() + static_cast<std::ptrdiff_t>(i--));
    }
    if (under_way)
      static_cast<void>(fail(Status(  // told by the next call that can tell
          Code::peer_failed,
          fmt::format("a message between this rank and rank {} was given up while it was under way",
                      peer.rank))));
  }
}

bool VerbsTransport::peer_is_gone(int peer) const {
  return peer >= 0 && static_cast<std::size_t>(peer) < peers_.size() &&
         peers_[static_cast<std::size_t>(peer)]->gone;
}

// What counted as sent when it was copied must still arrive. Not so what only serves the connection, which
// the other side may have closed already.
void VerbsTransport::flush_sends() {
  constexpr std::chrono::seconds kLongest{5};
  const Clock::time_point until = Clock::now() + kLongest;
  const auto busy = [](const auto& peer) { return peer->undelivered > 0; };
  while (failed_.ok() && std::any_of(peers_.begin(), peers_.end(), busy) && Clock::now() < until) {
    if (!poll_completions().ok()) return;
    std::this_thread::yield();
  }
}

VerbsTransport::~VerbsTransport() {
  flush_sends();
  for (const auto& peer : peers_) {
    peer->queue_pair.reset();
    for (LongReceive& receive : peer->long_receives) {
      for (std::size_t i = 0; i < receive.open.size(); ++i)
        registrations_.give_back(receive.open[i].lease);
    }
  }
}

}  // namespace heddle::verbs
