// Communicators of some of the ranks, which find each other by the one of all.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "comm/communicator_impl.hpp"

namespace heddle {
namespace {

struct Wish {
  std::int32_t color;
  std::int32_t key;
};

// Those that want to be with `rank`, in the order in which they want to be.
std::vector<int> group_of(const std::vector<Wish>& wishes, int rank) {
  const auto wish_of = [&](int r) { return wishes[static_cast<std::size_t>(r)]; };
  std::vector<int> members(wishes.size());
  std::iota(members.begin(), members.end(), 0);
  std::erase_if(members, [&](int r) { return wish_of(r).color != wish_of(rank).color; });
  std::ranges::stable_sort(members, {}, [&](int r) { return wish_of(r).key; });
  return members;
}

}  // namespace

// Up a binomial tree of blocking messages and down again, in which nobody waits for another in a circle. A
// rank knows its place in `members`.
Status CommunicatorImpl::gather_among(const std::vector<int>& members, std::size_t place, const void* mine,
                                      void* all, std::size_t bytes) {
  const std::size_t size = members.size();
  auto* const blocks = static_cast<std::byte*>(all);
  if (bytes > 0) std::memcpy(blocks + place * bytes, mine, bytes);
  const std::size_t top = std::bit_ceil(size);
  const std::size_t reach =
      place == 0 ? top : place & (~place + 1);  // places below this one in the tree, itself included
  for (std::size_t step = 1; step < reach && place + step < size; step *= 2) {
    const std::size_t count = std::min(step, size - place - step);
    HEDDLE_TRY(recv(blocks + (place + step) * bytes, count * bytes, members[place + step]));
  }
  if (place != 0) {
    const int above = members[place - reach];
    HEDDLE_TRY(send(blocks + place * bytes, std::min(reach, size - place) * bytes, above));
    HEDDLE_TRY(recv(blocks, size * bytes, above));
  }
  for (std::size_t step = reach / 2; step > 0; step /= 2) {
    if (place + step < size) HEDDLE_TRY(send(blocks, size * bytes, members[place + step]));
  }
  return {};
}

Result<std::unique_ptr<Communicator>> CommunicatorImpl::split(int color, int key) {
  std::vector<Wish> wishes(static_cast<std::size_t>(size_));
  const Wish mine{color, key};
  HEDDLE_TRY(gather(&mine, wishes.data(), sizeof mine, kSplitAgreement));
  if (color < 0) return std::unique_ptr<Communicator>();
  const std::vector<int> members = group_of(wishes, rank_);
  const auto place = static_cast<std::size_t>(std::ranges::find(members, rank_) - members.begin());
  Bootstrap bootstrap = bootstrap_of_others();
  bootstrap.host_progress = policy_.host_progress;
  bootstrap.rank = static_cast<int>(place);
  bootstrap.size = static_cast<int>(members.size());
  bootstrap.allgather = [&, this](const void* one, void* all, std::size_t bytes) {
    return gather_among(members, place, one, all, bytes);
  };
  return Communicator::create(bootstrap, config_);
}

}  // namespace heddle
