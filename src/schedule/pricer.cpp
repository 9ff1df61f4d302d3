#include "schedule/pricer.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

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
  return std::min(m * cost.small.at(bytes), m * cost.large.fixed_ns + bytes * cost.large.per_byte_ns);
}

double price(const TopologyView& topology, const ScheduleOf& schedule_of, std::size_t bytes,
             const CostModel& model, double give_up_ns) {
  return PricedRun(topology, all_of(topology, schedule_of), bytes, nullptr, model).finish_ns(give_up_ns);
}

double price_streams(const TopologyView& topology, const ScheduleOf& schedule_of, const StreamCosts& streams,
                     const CostModel& model, double give_up_ns) {
  return PricedRun(topology, all_of(topology, schedule_of), 0, &streams, model).finish_ns(give_up_ns);
}

}  // namespace heddle
