#include "comm/call_table.hpp"

#include <algorithm>
#include <string>

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
        return fmt::format("an allreduce ({}) of {} {}", op_name(call.op), call.count, dtype_name(call.type));
      case Kind::allreduce_elsewhere:
        return "an allreduce of a datatype or operation that is left to the host MPI";
      case Kind::bcast:
        return fmt::format("a bcast of {} bytes from rank {}", call.count, call.root);
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
           static_cast<std::uint64_t>(call.type) << 16 | static_cast<std::uint64_t>(call.op) << 24 |
           static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.root)) << 32;
  own[1] = call.count;
}

CollectiveCall CallTable::of(std::size_t rank) const {
  const std::uint64_t word = words_[rank * kWords];
  const auto byte = [&](int at) { return static_cast<std::uint8_t>(word >> at); };
  return {static_cast<CollectiveCall::Kind>(byte(0)),
          static_cast<CollectiveCall::Form>(byte(8)),
          words_[rank * kWords + 1],
          static_cast<DType>(byte(16)),
          static_cast<Op>(byte(24)),
          static_cast<int>(static_cast<std::uint32_t>(word >> 32))};
}

Status CallTable::judge(std::uint64_t number) const {
  struct Group {
    CollectiveCall call;
    std::uint64_t words[kWords];
    std::vector<int> ranks;
  };
  std::vector<Group> groups;  // in the order of their first ranks
  for (std::size_t rank = 0; rank < words_.size() / kWords; ++rank) {
    const std::uint64_t* const words = &words_[rank * kWords];
    const auto same = [&](const Group& group) { return std::equal(words, words + kWords, group.words); };
    auto group = std::find_if(groups.begin(), groups.end(), same);
    if (group == groups.end()) group = groups.insert(group, {of(rank), {words[0], words[1]}, {}});
    group->ranks.push_back(static_cast<int>(rank));
  }
  if (groups.size() == 1 && groups[0].call.kind != CollectiveCall::Kind::refused) return {};
  std::string text;
  for (std::size_t i = 0; i < std::min(groups.size(), kMostGroups); ++i) {
    const bool one = groups[i].ranks.size() == 1;
    text += fmt::format("{}{} {} in {}", i == 0 ? "" : "; ", describe(groups[i].ranks), one ? "is" : "are",
                        describe(groups[i].call));
  }
  if (groups.size() > kMostGroups) text += fmt::format("; and {} other calls", groups.size() - kMostGroups);
  return Status(Code::invalid_argument,
                fmt::format("in call {} of this communicator the ranks differ (HEDDLE_CHECK): {}. All ranks "
                            "must make the same calls in the same order",
                            number, text));
}

}  // namespace heddle
