#include "comm/call_table.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace heddle {
namespace {

// Lines of a message.
constexpr std::size_t kMostGroups = 4;

std::string describe(const CollectiveCall& call) {
  using Kind = CollectiveCall::Kind;
  const auto what = [&]() -> std::string {
    switch (call.kind) {
      case Kind::refused:
        return "a call with arguments that are refused there";
      case Kind::allreduce:
        if (call.count == 0) return "an allreduce of nothing";
        return fmt::format("an allreduce of {} element{} ({})", call.count, call.count == 1 ? "" : "s",
                           fold_kind_name(call.fold));
      case Kind::bcast:
        return fmt::format("a bcast of {} byte{} from rank {}", call.count, call.count == 1 ? "" : "s",
                           call.root);
      case Kind::allreduce_elsewhere:
        return "an allreduce that is the host MPI's, by its datatype, its operation or a mistake";
      case Kind::bcast_elsewhere:
        return "a bcast that is the host MPI's, by a mistake in its arguments";
      case Kind::reduce_elsewhere:
        return "a reduce that is the host MPI's, by its datatype, its operation or a mistake";
      case Kind::reduce:
        if (call.count == 0) return fmt::format("a reduce of nothing to rank {}", call.root);
        return fmt::format("a reduce of {} element{} ({}) to rank {}", call.count, call.count == 1 ? "" : "s",
                           fold_kind_name(call.fold), call.root);
      case Kind::allgather:
        return fmt::format("an allgather of {} byte{} of each rank", call.count, call.count == 1 ? "" : "s");
      case Kind::allgather_elsewhere:
        return "an allgather that is the host MPI's, by a mistake in its arguments";
      case Kind::barrier:
        return "a barrier";
      case Kind::sparse_allreduce:
        return "a sparse allreduce";
      case Kind::sparse_allreduce_dense:
        return "a sparse allreduce into a vector";
      case Kind::sparse_allreduce_in_place:
        return "a sparse allreduce in place";
      case Kind::sparse_allreduce_coded:
        return "a coded sparse allreduce";
      case Kind::compressed_allreduce:
        return "a compressed allreduce";
      case Kind::split:
        return "a split";
    }
    return "a call of another version";
  };
  static constexpr const char* kForms[] = {"", " by a request", " on a stream"};
  return what() + kForms[static_cast<std::size_t>(call.form)];
}

// "rank 1", "ranks 0, 2-5".
std::string describe(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1)
      ++last;
    text += fmt::format("{}{}", first == 0 ? "" : ", ", ranks[first]);
    if (last > first) text += fmt::format("{}{}", last == first + 1 ? ", " : "-", ranks[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace

void CallTable::state(int rank, const CollectiveCall& call) {
  std::fill(words_.begin(), words_.end(), 0);
  std::uint64_t* const own = &words_[static_cast<std::size_t>(rank) * kWords];
  own[0] = static_cast<std::uint64_t>(call.kind) | static_cast<std::uint64_t>(call.form) << 8 |
           static_cast<std::uint64_t>(call.fold) << 16 |
           static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.root)) << 32;
  own[1] = call.count;
}

CollectiveCall CallTable::of(std::size_t rank) const {
  const std::uint64_t word = words_[rank * kWords];
  const auto byte = [&](int at) { return static_cast<std::uint8_t>(word >> at); };
  return {static_cast<CollectiveCall::Kind>(byte(0)), static_cast<CollectiveCall::Form>(byte(8)),
          words_[rank * kWords + 1], byte(16), static_cast<int>(static_cast<std::uint32_t>(word >> 32))};
}

Status CallTable::judge(std::uint64_t number) const {
  const std::size_t ranks = words_.size() / kWords;
  const CollectiveCall first = of(0);
  std::size_t alike = 0;
  while (alike < ranks && of(alike) == first)
    ++alike;
  if (alike == ranks) return {};

  std::vector<std::pair<CollectiveCall, std::vector<int>>> groups;  // in the order of their first ranks
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto same = [&](const auto& group) { return group.first == of(rank); };
    auto group = std::find_if(groups.begin(), groups.end(), same);
    if (group == groups.end()) group = groups.insert(group, {of(rank), {}});
    group->second.push_back(static_cast<int>(rank));
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(groups.size(), kMostGroups); ++i) {
    const auto& [call, members] = groups[i];
    text += fmt::format("{}{} {} in {}", i == 0 ? "" : "; ", describe(members),
                        members.size() == 1 ? "is" : "are", describe(call));
  }
  if (groups.size() > kMostGroups) text += fmt::format("; and {} other calls", groups.size() - kMostGroups);
  return Status(Code::invalid_argument,
                fmt::format("in call {} of this communicator the ranks differ (HEDDLE_CHECK): {}. All ranks "
                            "must make the same calls in the same order",
                            number, text));
}

}  // namespace heddle
