// Coming together with peers, and what becomes known of the device and of them.
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "transports/verbs/queue_pair.hpp"
#include "transports/verbs/verbs_transport.hpp"

namespace heddle::verbs {
namespace {

constexpr std::uint32_t kWantedInline = 224;
constexpr std::chrono::milliseconds kProbeAfter{500};
constexpr std::chrono::milliseconds kLongUnseen{500};

// While something is in flight.
std::chrono::duration<double> unanswered_for(const Peer& peer, std::chrono::steady_clock::time_point now) {
  return now - peer.unanswered_since;
}

}  // namespace

Status VerbsTransport::begin(Peer& peer) {
  const Handshake::Next next = peer.handshake.begin(Clock::now());
  ++connecting_;
  begun_.push_back(&peer);
  if (Status made = make_queue_pair(peer); !made.ok()) return fail(std::move(made));
  return act(peer, next, {});
}

// Most ranks of a large communicator talk to few others: one too many is refused when it is needed, not all
// when there could be.
Status VerbsTransport::make_queue_pair(Peer& peer) {
  if ((receives_.size() + 1) * kCreditsPerPeer > receives_room_)
    return Status(
        Code::unsupported,
        fmt::format("{} shares at most {} receives between connections, enough for {} peers: there is none "
                    "left for a connection to rank {}",
                    device_.name(), receives_room_, receives_room_ / kCreditsPerPeer, peer.rank));
  completions_used_ += kCompletionsPerPeer;
  if (completions_used_ > completions_room_) {
    const int wanted = std::min(2 * completions_used_, device_.limits().max_cqe);
    const int err = wanted < completions_used_ ? ENOMEM : ibv_resize_cq(completions_.get(), wanted);
    if (err != 0)
      return system_error(fmt::format("{}: room for {} completions", device_.name(), wanted), err);
    completions_room_ = wanted;
  }
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = completions_.get();
  wanted.srq = shared_receives_.get();
  wanted.qp_type = IBV_QPT_RC;
  // Devices differ in what they take inline, and say so by refusing.
  for (std::uint32_t inlined = kWantedInline; peer.queue_pair == nullptr; inlined /= 2) {
    wanted.cap = {.max_send_wr = kSendDepth,
                  .max_recv_wr = 0,
                  .max_send_sge = 1,
                  .max_recv_sge = 1,
                  .max_inline_data = inlined};
    peer.queue_pair.reset(ibv_create_qp(device_.domain(), &wanted));
    if (peer.queue_pair == nullptr && inlined == 0)
      return registration_error(fmt::format("{}: ibv_create_qp for rank {}", device_.name(), peer.rank),
                                errno);
  }
  peer.inline_bytes = std::min(wanted.cap.max_inline_data, kWantedInline);
  peer.first_packet = std::random_device()() & 0xffffff;
  rank_of_queue_pair_[peer.queue_pair->qp_num] = peer.rank;

  if (const int err = prepare_queue_pair(*peer.queue_pair, device_); err != 0)
    return system_error(fmt::format("{}: preparing the queue pair for rank {}", device_.name(), peer.rank),
                        err);

  // Before the other side can know of the queue pair.
  Result<Block> block = allocate(kCreditsPerPeer, "to receive into");
  HEDDLE_TRY(block.status());
  receives_.push_back(std::move(block).value());
  for (std::uint64_t i = 0; i < kCreditsPerPeer; ++i)
    HEDDLE_TRY(open_receive((receives_.size() - 1) * kCreditsPerPeer + i));
  return {};
}

Status VerbsTransport::bring_up(Peer& peer, const Hello& hello) {
  ibv_qp_attr to{};
  // The ports' MTUs may differ.
  to.path_mtu = static_cast<ibv_mtu>(std::min(hello.mtu, device_.mtu()));
  to.dest_qp_num = hello.queue_pair;
  to.rq_psn = hello.first_packet;
  to.sq_psn = peer.first_packet;
  to.ah_attr = device_.route_to(peer.address);
  to.timeout = ack_timeout(deadlines_.silence);
  to.retry_cnt = kRetries;
  to.rnr_retry = receiver_retries(hello.pages_on_demand);
  to.min_rnr_timer = kReceiverPause;
  if (const int err = connect_queue_pair(*peer.queue_pair, to); err != 0)
    return system_error(
        fmt::format("{}: connecting to rank {} at {}", device_.name(), peer.rank, gid_text(peer.address.gid)),
        err);
  peer.credits = Credits(hello.credits, kCreditsPerPeer);
  peer.slot_bytes = std::min(hello.slot_bytes, kSlotBytes);
  peer.last_sign = peer.unanswered_since = Clock::now();
  peer.pages_on_demand = hello.pages_on_demand;
  return {};
}

Status VerbsTransport::say(Peer& peer, Hello::Kind kind, std::uint32_t gone) {
  Hello hello;
  hello.kind = kind;
  hello.stage = peer.handshake.stage();
  hello.mtu = device_.mtu();
  hello.credits = kCreditsPerPeer;
  hello.from = static_cast<std::uint32_t>(rank_);
  hello.to = static_cast<std::uint32_t>(peer.rank);
  hello.from_instance = datagrams_.address().instance;
  hello.to_instance = peer.address.instance;
  hello.queue_pair = kind == Hello::Kind::notice ? gone : peer.queue_pair->qp_num;
  hello.first_packet = peer.first_packet;
  hello.slot_bytes = kSlotBytes;
  hello.pages_on_demand = device_.follows_page_tables();
  return datagrams_.send(peer.address, peer.route, hello);
}

Status VerbsTransport::act(Peer& peer, const Handshake::Next& next, const Hello& hello) {
  if (next.broken) return lost(peer, "it has begun another connection than the one that it has");
  if (next.connect) {
    if (Status up = bring_up(peer, hello); !up.ok()) return fail(std::move(up));
  }
  if (next.say) {
    if (Status said = say(peer, Hello::Kind::hello); !said.ok()) return fail(std::move(said));
  }
  return {};
}

// Datagrams of other jobs, or of this one's past, may come to a queue pair that has their old number.
Status VerbsTransport::hear(const Hello& hello) {
  if (hello.to != static_cast<std::uint32_t>(rank_) || hello.to_instance != datagrams_.address().instance)
    return {};
  if (hello.from >= peers_.size() || !at(static_cast<int>(hello.from)).reachable) return {};
  Peer& peer = at(static_cast<int>(hello.from));
  if (hello.from_instance != peer.address.instance) return {};
  if (hello.kind == Hello::Kind::notice) {
    if (hello.queue_pair >= peers_.size() || hello.queue_pair == static_cast<std::uint32_t>(rank_)) return {};
    return lost(at(static_cast<int>(hello.queue_pair)),
                hello.queue_pair == hello.from ? "it has failed" : fmt::format("rank {} says so", peer.rank));
  }
  if (!peer.handshake.begun()) HEDDLE_TRY(begin(peer));
  const bool was_open = peer.handshake.is_open();
  const Handshake::Next next = peer.handshake.heard(hello, Clock::now());
  HEDDLE_TRY(act(peer, next, hello));
  if (was_open || !peer.handshake.is_open()) return {};
  --connecting_;
  return move(peer);
}

Status VerbsTransport::look_around() {
  Status heard;
  Status polled = datagrams_.poll([&](const Hello& hello) {
    if (heard.ok()) heard = hear(hello);
  });
  HEDDLE_TRY(heard);
  if (!polled.ok()) return fail(std::move(polled));

  constexpr unsigned kClockEvery = 4;  // of these looks
  if (++looks_ % kClockEvery != 0) return {};
  Status noted;
  device_.events([&](const ibv_async_event& event) {
    if (noted.ok()) noted = note(event);
  });
  if (!noted.ok()) return fail(std::move(noted));
  const Clock::time_point now = Clock::now();
  // A port that comes back in time costs nothing: what was lost is sent again.
  if (port_down_ && now - port_down_since_ > deadlines_.silence / 2)
    return fail(Status(Code::system, fmt::format("{} went down, and did not come back", device_.name())));
  const Clock::duration unseen = now - std::exchange(looked_, now);
  for (Peer* peer : begun_) {
    if (unseen > kLongUnseen) peer->handshake.was_away(unseen, now);
    HEDDLE_TRY(look_at(*peer, now));
  }
  return {};
}

Status VerbsTransport::look_at(Peer& peer, Clock::time_point now) {
  if (peer.handshake.is_open()) return look_at_open(peer, now);
  if (deadlines_.connection.count() != 0 && peer.handshake.waited(now) > deadlines_.connection)
    return lost(peer, fmt::format("it has not answered for {:.1f} s",
                                  static_cast<double>(deadlines_.connection.count()) / 1e3));
  return act(peer, peer.handshake.tick(now), {});
}

Status VerbsTransport::look_at_open(Peer& peer, Clock::time_point now) {
  const bool too_long = unanswered_for(peer, now) > gives_up_within(deadlines_.silence);
  // Once more: this process may have stood still between the last time and the clock.
  if (too_long) HEDDLE_TRY(poll_completions());
  const bool sign = std::exchange(peer.sign, false);
  if (sign) peer.last_sign = now;
  const bool waits = !sign && !std::exchange(peer.idle, peer.in_flight == 0);
  if (!waits) peer.unanswered_since = now;
  if (waits && too_long && !peer.left && !peer.pages_on_demand)
    return lost(peer,
                fmt::format("the device has neither delivered nor given up what is on its way there, for "
                            "{:.1f} s",
                            unanswered_for(peer, now).count()));
  const bool quiet = now - peer.last_sign > kProbeAfter;
  return quiet && peer.waited_for() && !peer.probing && peer.in_flight == 0 ? probe(peer) : Status();
}

// What is seen, not what follows: a rank that computes elsewhere does not answer either.
std::string VerbsTransport::trouble(int rank) const {
  const Peer& peer = *peers_[static_cast<std::size_t>(rank)];
  if (peer.handshake.is_open()) {
    const std::chrono::duration<double> unanswered = unanswered_for(peer, Clock::now());
    if (peer.in_flight == 0 || unanswered < kProbeAfter) return "";
    return fmt::format("{} has had no acknowledgement from there for {:.1f} s ({} on their way)",
                       device_.name(), unanswered.count(), peer.in_flight);
  }
  if (!peer.handshake.begun()) return "";
  const auto waited = static_cast<double>(peer.handshake.waited(Clock::now()).count()) / 1e3;
  const bool heard = peer.handshake.stage() != Stage::calling;
  return fmt::format("no answer to hellos for {:.1f} s over {} (GID {} {}, to {}){}", waited, device_.name(),
                     device_.gid().index, gid_text(device_.gid().gid), gid_text(peer.address.gid),
                     heard ? ", though that rank's own come" : "");
}

// A write of nothing: the other side's device acknowledges it without its process, and only while the process
// has the queue pair.
Status VerbsTransport::probe(Peer& peer) {
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE;
  peer.probing = true;
  return post(peer, request, {.kind = Work::Kind::probe, .peer = peer.rank});
}

Status VerbsTransport::note(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_PORT_ERR:
      if (event.element.port_num != device_.port()) return {};
      if (!port_down_) port_down_since_ = Clock::now();
      port_down_ = true;
      return {};
    case IBV_EVENT_PORT_ACTIVE:
      if (event.element.port_num == device_.port()) port_down_ = false;
      return {};
    case IBV_EVENT_DEVICE_FATAL:
      return Status(Code::system, fmt::format("{}: the device has failed, or was removed", device_.name()));
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_PATH_MIG_ERR: {
      const auto rank = rank_of_queue_pair_.find(event.element.qp->qp_num);
      const std::string what = fmt::format("the connection broke: {}", ibv_event_type_str(event.event_type));
      if (rank != rank_of_queue_pair_.end()) return lost(at(rank->second), what);
      return Status(Code::system, fmt::format("{}: {}", device_.name(), what));
    }
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
      return Status(Code::internal,
                    fmt::format("{}: {}", device_.name(), ibv_event_type_str(event.event_type)));
    default:
      return {};  // addresses, keys and subnet managers come and go
  }
}

Status VerbsTransport::lost(Peer& peer, const std::string& why) {
  peer.gone = true;
  return fail(
      Status(Code::peer_failed, fmt::format("rank {} is gone: {} ({})", peer.rank, why, device_.name())));
}

// Of one that has left nothing is to be had any more, but for what has come already.
Status VerbsTransport::lost_if_left(Peer& peer) {
  return peer.left ? lost(peer, "it has ended, or closed the connection") : Status();
}

int VerbsTransport::lost_one() const {
  const auto found = std::find_if(peers_.begin(), peers_.end(), [](const auto& peer) { return peer->gone; });
  return found == peers_.end() ? -1 : (*found)->rank;
}

// Final. A rank that has failed moves no more messages: those who wait for it learn that here, and by
// connections that end. Those who wait for ranks that wait for a lost one learn of that one, and need not
// wait for us to end. Nor need those whose hellos are not answered.
Status VerbsTransport::fail(Status status) {
  if (!failed_.ok()) return failed_;
  failed_ = std::move(status);
  tell(begun_);
  for (Peer* peer : begun_)
    break_connection(*peer);
  return failed_;
}

// As where this has failed by itself, and to those as well who have no connection yet: they may be waiting
// for an answer.
void VerbsTransport::leave(const Departure& why) {
  if (!failed_.ok()) return;
  if (why.is_for_the_gone() && at(why.culprit).reachable) at(why.culprit).gone = true;
  static_cast<void>(fail(Status(Code::peer_failed, "this rank has left the others")));
  std::vector<Peer*> others;
  for (const auto& peer : peers_) {
    if (peer->reachable && !peer->handshake.begun()) others.push_back(peer.get());
  }
  tell(others);
}

// Best effort, and for a moment: whom this does not get through to finds out by itself, which takes him
// longer. Nobody but this takes what the device has sent from its queue any more, and the queue is shorter
// than there are ranks.
void VerbsTransport::tell(const std::vector<Peer*>& peers) {
  constexpr std::chrono::milliseconds kTellWithin{2000};
  const Clock::time_point until = Clock::now() + kTellWithin;
  const int lost = lost_one();
  for (Peer* peer : peers) {
    if (peer->gone) continue;
    while (!datagrams_.may_send() && Clock::now() < until) {
      if (!datagrams_.poll([](const Hello&) {}).ok()) return;
    }
    // Finding the way to a peer may take the system long, too.
    if (Clock::now() >= until) return;
    static_cast<void>(say(*peer, Hello::Kind::notice, static_cast<std::uint32_t>(lost < 0 ? rank_ : lost)));
  }
}

void VerbsTransport::break_connection(Peer& peer) {
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_ERR;
  // Where even that fails the queue pair goes altogether.
  if (peer.queue_pair != nullptr && ibv_modify_qp(peer.queue_pair.get(), &to, IBV_QP_STATE) != 0)
    peer.queue_pair.reset();
}

}  // namespace heddle::verbs
