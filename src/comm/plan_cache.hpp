// The plans of one communicator: for each collective and size class the chosen algorithm and its schedule,
// ready to run.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/recently_used.hpp"
#include "base/status.hpp"
#include "engine/engine.hpp"
#include "select/selector.hpp"

namespace heddle {

// Sizes in [2^(k-1), 2^k) share class k; class 0 holds 0 bytes.
constexpr unsigned size_class(std::size_t bytes) {
  return static_cast<unsigned>(std::bit_width(bytes));
}

// Every size of a class must get the same answer on every rank, whichever comes first: a choice is made for
// its middle.
constexpr std::size_t middle_of_class(std::size_t bytes) {
  return std::bit_floor(bytes) + std::bit_floor(bytes) / 2;
}

class PlanCache {
 public:
  // Borrows all but `peers`: whom a schedule's messages go to and come from in place of the topology's ranks;
  // empty: these themselves.
  PlanCache(const TopologyView& topology, std::int32_t rank, const Selector& selector, const Log& log,
            std::vector<std::int32_t> peers = {})
      : topology_(topology), rank_(rank), selector_(selector), log_(log), peers_(std::move(peers)) {}

  // What serves this size; chosen, and reported in the log, at the first use.
  Result<const Selection*> selection(Collective collective, std::size_t bytes, bool messages_only);

  // The selector decides by something else from now on. Selections handed out before are gone.
  void choose_again() {
    for (std::unique_ptr<Selection>& each : selections_)
      each.reset();
  }

  // A bcast from every rank, or a reduce to every rank, in turn must not keep a schedule for each of them for
  // ever.
  static constexpr std::size_t kMostSchedules = 256;
  // The schedule of a selection for a root, built at the first use, and again where many others were used
  // since.
  std::shared_ptr<const Schedule> schedule(const Choice& choice, std::int32_t root);

 private:
  static constexpr std::size_t kClasses = 65;

  static std::size_t index(Collective collective, std::size_t bytes, bool messages_only) {
    return (static_cast<std::size_t>(collective) * 2 + (messages_only ? 1 : 0)) * kClasses +
           size_class(bytes);
  }
  void report(Collective collective, std::size_t bytes, const Selection& selection, bool messages_only) const;
  Schedule build(const Choice& choice, std::int32_t root) const;

  using Key = std::tuple<const Algorithm*, std::int32_t, std::int32_t, std::uint32_t, std::uint32_t>;

  const TopologyView& topology_;
  std::int32_t rank_;
  const Selector& selector_;
  const Log& log_;
  std::vector<std::int32_t> peers_;
  std::array<std::unique_ptr<Selection>, kCollectives * 2 * kClasses> selections_;
  RecentlyUsed<Key, std::shared_ptr<const Schedule>> schedules_{kMostSchedules};
};

}  // namespace heddle
