#include "schedule/pricer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "schedule/long_repeats.hpp"
#include "schedule/priced_run.hpp"

namespace heddle {
namespace {

std::vector<Schedule> all_of(const TopologyView& topology, const ScheduleOf& schedule_of) {
  std::vector<Schedule> schedules;
  schedules.reserve(static_cast<std::size_t>(topology.size()));
  for (std::int32_t rank = 0; rank < topology.size(); ++rank)
    schedules.push_back(schedule_of(rank));
  return schedules;
}

// Of a long ring or chain few iterations tell what all take. Three numbers of them are run; the rest is
// counted, where the times from one to the next say the same of an iteration. They do not of a ring that some
// ranks come to later than others: that evens out on the way.
std::optional<double> price_of_repeats(const TopologyView& topology, std::vector<Schedule>& schedules,
                                       std::size_t bytes, const CostModel& model, double give_up_ns) {
  constexpr std::array<std::uint32_t, 3> kRun = {9, 5, 3};
  constexpr double kSame = 0.005;  // of the price
  LongRepeats repeats(topology, schedules);
  const std::uint32_t all = repeats.iterations();
  std::uint32_t run = 0;
  for (const std::uint32_t n : kRun)
    run += n + repeats.filling();
  if (run > all - all / 4) return std::nullopt;
  std::array<double, 3> ns{};
  for (std::size_t i = 0; i < kRun.size(); ++i) {
    repeats.shorten(kRun[i] + repeats.filling());
    ns[i] = PricedRun(topology, schedules, bytes, nullptr, model).finish_ns(give_up_ns);
    if (ns[i] > give_up_ns) return ns[i];
  }
  const std::uint32_t rest = all - kRun[0] - repeats.filling();
  const double late_ns = (ns[0] - ns[1]) / (kRun[0] - kRun[1]);
  const double early_ns = (ns[1] - ns[2]) / (kRun[1] - kRun[2]);
  const double price_ns = ns[0] + late_ns * rest;
  if (std::abs(late_ns - early_ns) * rest <= price_ns * kSame) return price_ns;
  repeats.shorten(all);
  return std::nullopt;
}

}  // namespace

const LevelCost& level_cost(const TopologyView& topology, const CostModel& model, std::int32_t a,
                            std::int32_t b) {
  static constexpr LevelCost kFree{};
  if (model.levels.empty()) return kFree;
  int l = 0;
  while (l < topology.levels() && topology.group_of(l, a) != topology.group_of(l, b))
    ++l;
  return model.levels[std::min(static_cast<std::size_t>(l), model.levels.size() - 1)];
}

double team_verb_ns(const Step& step, double bytes, std::size_t members, const CostModel& model) {
  if (members == 1) {
    const bool copies = step.kind != StepKind::team_bcast && step.dst != step.src;
    return copies ? model.copy.at(bytes) : 0;
  }
  const auto m = static_cast<double>(members);
  const CostModel::TeamCost& cost = model.team[step.lane];
  const bool gathers = step.kind == StepKind::team_allgather;
  const double given = gathers ? bytes / m : bytes;
  const double moved = gathers ? bytes / 2 : bytes;
  return std::min(m * cost.small.at(given), m * cost.large.fixed_ns + moved * cost.large.per_byte_ns);
}

double price(const TopologyView& topology, const ScheduleOf& schedule_of, std::size_t bytes,
             const CostModel& model, double give_up_ns) {
  std::vector<Schedule> schedules = all_of(topology, schedule_of);
  if (const auto known = price_of_repeats(topology, schedules, bytes, model, give_up_ns)) return *known;
  return PricedRun(topology, schedules, bytes, nullptr, model).finish_ns(give_up_ns);
}

double price_streams(const TopologyView& topology, const ScheduleOf& schedule_of, const StreamCosts& streams,
                     const CostModel& model, double give_up_ns) {
  return PricedRun(topology, all_of(topology, schedule_of), 0, &streams, model).finish_ns(give_up_ns);
}

}  // namespace heddle
