#include "comm/peer_watch.hpp"

#include <chrono>
#include <string>

#include <fmt/format.h>

#include "transports/shm/shm_team.hpp"

namespace heddle {
namespace {

// All members of a team wait for one that is late, and the first of them who is not late says so. The others
// say it as well when so many times as long has passed: the first may wait for nobody (the root of a bcast),
// or be late itself.
constexpr int kOthersWarn = 6;

// Between nodes not every pair of calls that differ meets in a way that shows it: some wait for each other.
constexpr const char* kMayDiffer = "; HEDDLE_CHECK=1 tells whether the ranks' calls differ";

// Those that say nothing by their sizes. Null: they do.
const char* name_of_call(const TeamCall& call) {
  if (call.verb != TeamVerb::allreduce) return nullptr;
  switch (call.kind) {
    case 0:
      return call.bytes == 0 ? "a barrier" : nullptr;
    case kSplitAgreement:
      return "a split";
    case kSparseAgreement:
      return "a sparse allreduce";
    case kSparseRequestAgreement:
      return "a sparse allreduce by a request";
    case kCompressedAgreement:
      return "a compressed allreduce";
    default:
      return nullptr;
  }
}

}  // namespace

int PeerWatch::rank_of_member(int member, TeamKind team) const {
  return member < 0 ? -1 : connections_.topology.team(team, rank_)[static_cast<std::size_t>(member)];
}

Status PeerWatch::inspect(const Waiting& waiting, Patience& patience) {
  if (waiting.clash.member >= 0) {
    const auto in_ranks = [&](TeamCall call) {
      if (call.verb != TeamVerb::allreduce) call.root = rank_of_member(call.root, waiting.team);
      return call;
    };
    return different_calls(rank_of_member(waiting.clash.member, waiting.team), in_ranks(waiting.clash.theirs),
                           in_ranks(waiting.clash.ours));
  }
  if (waiting.on == Waiting::On::member) {
    // A member of a domain may wait for another domain itself.
    const Blame blame = waiting.team == TeamKind::node ? Blame::sure : Blame::likely;
    const int speaker = rank_of_member(waiting.who == 0 ? 1 : 0, waiting.team);
    return inspect(rank_of_member(waiting.who, waiting.team), blame, patience, waiting.passed,
                   rank_ == speaker ? 1 : kOthersWarn);
  }
  return inspect(waiting.who, Blame::likely, patience);
}

// Two calls may go by ways that do not meet, by messages and by the team, and wait for each other.
Status PeerWatch::compare_waiting(std::uint64_t number, const TeamCall& call) const {
  ShmTeam* const team = connections_.teams[static_cast<std::size_t>(TeamKind::node)].get();
  if (team == nullptr) return {};
  const TeamClash clash = team->compare_waiting(number, call);
  if (clash.member < 0) return {};
  return different_calls(rank_of_member(clash.member, TeamKind::node), clash.theirs, clash.ours);
}

Status PeerWatch::different_calls(int rank, const TeamCall& theirs, const TeamCall& ours) const {
  const auto name = [&](const TeamCall& call) {
    if (const char* const known = name_of_call(call); known != nullptr) return std::string(known);
    static constexpr const char* kNames[] = {"an allreduce", "a reduce", "a bcast", "an allgather"};
    const bool gathers = call.verb == TeamVerb::allgather;
    std::string text = fmt::format("{} of {} bytes{}", kNames[static_cast<std::size_t>(call.verb)],
                                   call.bytes, gathers ? " of each rank" : "");
    if (theirs.kind != ours.kind && call.kind != 0) text += fmt::format(" ({})", fold_kind_name(call.kind));
    if (call.verb == TeamVerb::reduce || call.verb == TeamVerb::bcast)
      text += fmt::format(" with root {}", call.root);
    return text;
  };
  return Status(
      Code::invalid_argument,
      fmt::format("{} is in {} where this rank is in {}: all ranks must make the same calls with the same "
                  "sizes, types and operations",
                  name_of(rank), name(theirs), name(ours)));
}

std::string PeerWatch::name_of(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  return fmt::format("rank {} (process {} on {})", rank, connections_.pid_of[index],
                     connections_.host_of[index]);
}

bool PeerWatch::is_gone(int rank) const {
  const Transport* transport = connections_.ports.transport_of[static_cast<std::size_t>(rank)];
  return transport != nullptr && transport->peer_is_gone(rank);
}

std::string PeerWatch::trouble_with(int rank) const {
  const Transport* transport = connections_.ports.transport_of[static_cast<std::size_t>(rank)];
  const std::string trouble = transport != nullptr ? transport->trouble(rank) : "";
  return trouble.empty() ? "" : "; " + trouble;
}

bool PeerWatch::has_left(int rank) const {
  const Transport* transport = connections_.ports.transport_of[static_cast<std::size_t>(rank)];
  return transport != nullptr && transport->peer_has_left(rank);
}

// For whose sake `rank` says that it has failed: another one's, or this rank's, which did not come. None: it
// has not, or does not say.
Departure PeerWatch::left_for(int rank) const {
  const Transport* transport = connections_.ports.transport_of[static_cast<std::size_t>(rank)];
  const Departure why = transport != nullptr ? transport->peer_left_for(rank) : Departure();
  if (why.culprit >= connections_.topology.size() || why.culprit == rank) return {};
  return why.culprit == rank_ && why.waited_ms == 0 ? Departure() : why;
}

// Others that are gone by the time we look; but for those that have failed for the sake of another one, and
// ended after that.
std::string PeerWatch::also_gone(int besides) const {
  std::string text;
  for (int rank = 0; rank < connections_.topology.size(); ++rank) {
    if (rank != besides && is_gone(rank) && !left_for(rank).is_known())
      text += "; " + name_of(rank) + " is gone";
  }
  return text;
}

Status PeerWatch::failed_for(int rank, const Departure& why) const {
  const std::string culprit = why.culprit == rank_ ? "this rank" : name_of(why.culprit);
  return Status(Code::peer_failed, why_left(name_of(rank), culprit, why) + also_gone(why.culprit))
      .at_second_hand();
}

Status PeerWatch::failed_without(int rank) const {
  if (const Departure why = left_for(rank); why.is_known()) return failed_for(rank, why);
  return Status(Code::peer_failed,
                name_of(rank) + " has failed, or has destroyed its communicator" + also_gone(rank))
      .at_second_hand();
}

// The ranks of this node may do for it what takes long. Each tells what it has seen move of its own alone, so
// that those who wait for each other in vain tell nothing. That is also what has moved since the last look of
// a wait before this one, unless that is long ago.
void PeerWatch::see_movement(Patience& patience, std::uint64_t passed) {
  constexpr std::chrono::milliseconds kLongAgo{500};
  std::uint64_t own = 0;
  std::uint64_t others = 0;
  for (const Transport* transport : connections_.ports.transports) {
    own += transport->moved();
    others += transport->others_moved();
  }
  const TimePoint time = now(policy_.clock);
  const bool before = own != moved_ && time - looked_ < kLongAgo;
  moved_ = own;
  looked_ = time;
  if (!patience.see(own + passed, others) && !before) return;
  for (Transport* transport : connections_.ports.transports)
    transport->tell_moved();
}

Status PeerWatch::inspect(int missing, Blame blame, Patience& patience, std::uint64_t passed,
                          int warns_after) {
  see_movement(patience, passed);
  // Whoever was missing has come in this very moment: the next look sees.
  if (missing < 0) return {};
  const std::string who = name_of(missing);
  // Looked at first: who fails says for whose sake, and may be gone a moment later.
  const bool gone = is_gone(missing);
  if (const Departure why = left_for(missing); why.is_known()) {
    culprit_ = why.culprit == rank_ ? Departure{missing} : why;
    return failed_for(missing, why);
  }
  if (gone) {
    culprit_ = {missing};
    return Status(Code::peer_failed, who + " is gone" + also_gone(missing));
  }
  const double seconds = static_cast<double>(patience.waited().count()) / 1e3;
  std::string trouble = trouble_with(missing);
  if (trouble.empty() && !compares_ && blame != Blame::partner) trouble = kMayDiffer;
  if (patience.deadline_passed()) {
    const bool sure = blame != Blame::likely || connections_.topology.size() == 2;
    // One that may wait itself is nobody's to blame.
    late_ = sure ? Departure{missing, static_cast<std::uint32_t>(patience.waited().count())} : Departure();
    return Status(Code::timeout,
                  fmt::format("{} {} within {:.1f} s (HEDDLE_TIMEOUT){}{}", who,
                              sure ? "did not take part" : "did not take part, or waits itself,", seconds,
                              trouble, also_gone(missing)));
  }
  if (has_left(missing)) return failed_without(missing);
  ProcessState& process = *connections_.process;
  const TimePoint time = now(policy_.clock);
  if (process.may_warn(time) && patience.warning_due(warns_after)) {
    process.has_warned(time);
    log_.warn(fmt::format("waiting for {} for {:.1f} s; still waiting{}{}", who, seconds,
                          policy_.timeout.count() == 0 ? " (HEDDLE_TIMEOUT sets a limit)" : "", trouble));
  }
  return {};
}

Departure PeerWatch::culprit_of(const Status& status) {
  if (status.code() == Code::timeout) culprit_ = late_;
  for (const Transport* transport : connections_.ports.transports) {
    if (!culprit_.is_known()) culprit_ = transport->culprit();
  }
  return culprit_;
}

}  // namespace heddle
