#include "heddle_info/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "heddle_info/info.hpp"
#include "select/selector.hpp"
#include "transports/shm/shm_transport.hpp"

namespace heddle::info {
namespace {

TopologyView topology_of(const DescribedMachine& machine) {
  std::vector<std::int32_t> node_of;
  for (std::int32_t rank = 0; rank < machine.nodes * machine.ranks_per_node; ++rank)
    node_of.push_back(rank / machine.ranks_per_node);
  return TopologyView({std::move(node_of)});
}

// A quarter of the latency is work of either end, as where nothing was measured.
CostModel model_of(const DescribedMachine& machine) {
  const double fixed_ns = machine.latency_us * 1e3;
  const MessageCost between{fixed_ns, 8 / machine.gbit, fixed_ns / 4, 0, machine.crossing};
  return default_cost_model(kShmMessageCost, between, false);
}

const char* by_text(ChosenBy by) {
  switch (by) {
    case ChosenBy::force:
      return "HEDDLE_ALGORITHM";
    case ChosenBy::tuning:
      return "HEDDLE_TUNING_FILE";
    case ChosenBy::measuring:
      return "measuring";
    case ChosenBy::price:
      break;
  }
  return "price";
}

std::vector<PricedAlgorithm> candidates_of(const Selector& selector, Collective collective,
                                           std::size_t bytes) {
  std::map<std::string, PricedAlgorithm> cheapest;
  for (const Choice& choice : selector.candidates(collective, bytes, false)) {
    const PricedAlgorithm priced{choice.algorithm->name, choice.shape.radix, choice.shape.chunks,
                                 choice.shape.leaders, selector.price_of(choice, bytes) / 1e3};
    const auto [at, added] = cheapest.try_emplace(priced.name, priced);
    if (!added && priced.us < at->second.us) at->second = priced;
  }
  std::vector<PricedAlgorithm> sorted;
  for (auto& [name, priced] : cheapest)
    sorted.push_back(std::move(priced));
  std::ranges::stable_sort(sorted, {}, &PricedAlgorithm::us);
  return sorted;
}

constexpr std::size_t kShown = 4;  // of each size, in text

std::string time_text(double us) {
  if (us < 10) return fmt::format("{:.2f}", us);
  return us < 100 ? fmt::format("{:.1f}", us) : fmt::format("{:.0f}", us);
}

}  // namespace

Result<std::vector<ExplainedSize>> explain(const DescribedMachine& machine, std::size_t largest,
                                           const Config& config) {
  const TopologyView topology = topology_of(machine);
  const Preferences preferences = read_preferences(config);
  const Selector selector(topology, model_of(machine),
                          {machine.ranks_per_node > 1, machine.nodes > 1 || machine.ranks_per_node > 1},
                          preferences);
  std::vector<ExplainedSize> sizes;
  for (const Collective collective : kChosenCollectives) {
    for (std::size_t bytes = 8; bytes <= largest; bytes *= 4) {
      const Result<Selection> selected = selector.select(collective, bytes, false);
      HEDDLE_TRY(selected.status());
      sizes.push_back({collective, bytes, selected.value().choice.algorithm->name,
                       by_text(selected.value().by), candidates_of(selector, collective, bytes)});
    }
  }
  return sizes;
}

std::string as_text(const DescribedMachine& machine, const std::vector<ExplainedSize>& sizes) {
  std::string out = fmt::format(
      "Prices on {} node{} of {} rank{} in microseconds, the cheapest ones (all with --json); * is chosen.\n",
      machine.nodes, machine.nodes == 1 ? "" : "s", machine.ranks_per_node,
      machine.ranks_per_node == 1 ? "" : "s");
  if (machine.nodes > 1)
    out += fmt::format(
        "A message between nodes takes {} us, {} while every node sends to a distant one; links carry {} "
        "Gbit/s.\n",
        machine.latency_us,
        machine.crossing == 1 ? "also" : fmt::format("{} times as long", machine.crossing), machine.gbit);
  const Collective* last = nullptr;
  for (const ExplainedSize& size : sizes) {
    if (last == nullptr || *last != size.collective)
      out += fmt::format("\n{}{}\n", collective_name(size.collective),
                         size.collective == Collective::allgather ? ", by the bytes of each rank" : "");
    last = &size.collective;
    out += fmt::format("{:>10} ", bytes_text(size.bytes));
    std::size_t shown = 0;
    for (const PricedAlgorithm& candidate : size.candidates) {
      const bool is_chosen = candidate.name == size.choice;
      if (shown >= kShown && !is_chosen) continue;
      out += fmt::format("{} {}{} {}", shown == 0 ? "" : ",", is_chosen ? "*" : "", candidate.name,
                         time_text(candidate.us));
      ++shown;
    }
    if (size.by != "price") out += fmt::format("  (by {})", size.by);
    out += "\n";
  }
  return out;
}

std::string as_json(const DescribedMachine& machine, const std::vector<ExplainedSize>& sizes) {
  nlohmann::json out{{"nodes", machine.nodes},           {"ranks_per_node", machine.ranks_per_node},
                     {"latency_us", machine.latency_us}, {"gbit_per_s", machine.gbit},
                     {"crossing", machine.crossing},     {"sizes", nlohmann::json::array()}};
  for (const ExplainedSize& size : sizes) {
    nlohmann::json candidates = nlohmann::json::array();
    for (const PricedAlgorithm& c : size.candidates)
      candidates.push_back({{"algorithm", c.name},
                            {"radix", c.radix},
                            {"chunks", c.chunks},
                            {"leaders", c.leaders},
                            {"us", c.us}});
    out["sizes"].push_back({{"collective", collective_name(size.collective)},
                            {"bytes", size.bytes},
                            {"choice", size.choice},
                            {"by", size.by},
                            {"candidates", candidates}});
  }
  return out.dump(2) + "\n";
}

}  // namespace heddle::info
