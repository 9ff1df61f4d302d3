// What pricing at scale costs, and how far it is from running all ranks: no simulator, no messages.
//
//     price_study exact RANKS...      both prices of every allreduce and bcast, where all ranks can be run
//     price_study choose MACHINE...   the choice at each size: time, and memory of the process
//     price_study against MACHINE...  how many times as long the choice takes as the best candidate, when all
//                                     ranks are run
//
// A machine is a number of nodes, of NODESxRANKS ranks in blocks, or of NODESxRANKSt in turn.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <vector>

#include "schedule/priced_run.hpp"
#include "select/selector.hpp"

namespace heddle::scale {
namespace {

constexpr std::size_t kSizes[] = {8, 1 << 10, 32 << 10, 1 << 20, 16 << 20};
constexpr MessageCost kMessage{1400, 0.08, 200};

// Of the processor, which others may have meanwhile.
double now_ms() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}
double ms_since(double start) {
  return now_ms() - start;
}

// The least of a few runs, since others may have slowed the processor down.
template <typename Run>
double least_ms(Run run) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 5; ++i) {
    const double start = now_ms();
    run();
    least = std::min(least, now_ms() - start);
  }
  return least;
}

double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

CostModel model() {
  return default_cost_model({400, 0.1}, kMessage, false);
}

TopologyView machine(const char* text) {
  char* end = nullptr;
  const auto nodes = static_cast<std::int32_t>(std::strtol(text, &end, 10));
  if (*end == 0) return TopologyView::flat(nodes);
  const auto ranks = static_cast<std::int32_t>(std::strtol(end + 1, &end, 10));
  std::vector<std::int32_t> node_of;
  for (std::int32_t rank = 0; rank < nodes * ranks; ++rank)
    node_of.push_back(*end == 't' ? rank % nodes : rank / ranks);
  return TopologyView({std::move(node_of)});
}

double price_of_all(const TopologyView& topology, const Choice& c, std::size_t bytes, const CostModel& costs,
                    double give_up_ns = std::numeric_limits<double>::infinity()) {
  std::vector<Schedule> schedules;
  for (std::int32_t rank = 0; rank < topology.size(); ++rank)
    schedules.push_back(c.algorithm->build(topology, rank, c.shape));
  return PricedRun(topology, schedules, bytes, nullptr, costs).finish_ns(give_up_ns);
}

void exact(const char* text) {
  const TopologyView topology = machine(text);
  const std::int32_t ranks = topology.size();
  const Preferences nothing;
  const Selector selector(topology, model(), {false, true}, nothing);
  for (const Collective collective : {Collective::allreduce, Collective::bcast}) {
    for (const std::size_t bytes : kSizes) {
      for (const Choice& c : selector.candidates(collective, bytes, false)) {
        double start = now_ms();
        const double estimated_ns = selector.price_of(c, bytes);
        const double estimate_ms = ms_since(start);
        start = now_ms();
        const double exact_ns = price_of_all(topology, c, bytes, model());
        std::printf("exact %d %s %zu %s %d %u %.1f %.1f %.3f %.3f\n", ranks, collective_name(collective),
                    bytes, c.algorithm->name, c.shape.radix, c.shape.chunks, exact_ns, estimated_ns,
                    ms_since(start), estimate_ms);
        std::fflush(stdout);
      }
    }
  }
}

void choose(const char* text) {
  const double start = now_ms();
  const double before_mib = peak_mib();
  const TopologyView topology = machine(text);
  const std::int32_t ranks = topology.size();
  std::printf("topology %s %.3f %.1f\n", text, ms_since(start), peak_mib() - before_mib);
  const Preferences nothing;
  const Selector selector(topology, model(), {topology.nodes() < ranks, true}, nothing);
  for (const Collective collective : {Collective::allreduce, Collective::bcast}) {
    for (const std::size_t bytes : kSizes) {
      Result<Selection> chosen = Status();
      const double choose_ms = least_ms([&] { chosen = selector.select(collective, bytes, false); });
      if (!chosen.ok()) std::exit(1);
      const Choice& c = chosen.value().choice;
      Schedule schedule;
      const double build_ms = least_ms([&] { schedule = c.algorithm->build(topology, ranks / 3, c.shape); });
      std::printf("choose %s %s %zu %s %d %u %.1f %.3f %.4f %zu %.1f\n", text, collective_name(collective),
                  bytes, c.algorithm->name, c.shape.radix, c.shape.chunks, c.price_ns, choose_ms, build_ms,
                  schedule.steps.size(), peak_mib());
      std::fflush(stdout);
    }
  }
}

void against(const char* text) {
  constexpr std::size_t kAgainst[] = {8, 8 << 10, 64 << 10, 1 << 20, 16 << 20};
  const TopologyView topology = machine(text);
  const CostModel costs = default_cost_model(
      {500, 0.1}, {kMessage.fixed_ns, kMessage.per_byte_ns, kMessage.handling_ns, 0, 1}, false);
  const Preferences nothing;
  const Selector selector(topology, costs, {true, true}, nothing);
  for (const Collective collective : {Collective::allreduce, Collective::bcast}) {
    for (const std::size_t bytes : kAgainst) {
      const Choice chosen = selector.cheapest(collective, bytes, false);
      const double chosen_ns = price_of_all(topology, chosen, bytes, costs);
      double least_ns = chosen_ns;
      Choice best = chosen;
      for (const Choice& c : selector.candidates(collective, bytes, false)) {
        const double ns = price_of_all(topology, c, bytes, costs, least_ns);
        if (ns < least_ns) best = c;
        least_ns = std::min(least_ns, ns);
      }
      std::printf("against %s %s %zu %.4f %s %d %u %u %s %d %u %u\n", text, collective_name(collective),
                  bytes, chosen_ns / least_ns, chosen.algorithm->name, chosen.shape.radix,
                  chosen.shape.chunks, chosen.shape.leaders, best.algorithm->name, best.shape.radix,
                  best.shape.chunks, best.shape.leaders);
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace heddle::scale

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const bool is_exact = std::strcmp(argv[1], "exact") == 0;
  const bool is_against = std::strcmp(argv[1], "against") == 0;
  for (int i = 2; i < argc; ++i)
    (is_exact ? heddle::scale::exact : is_against ? heddle::scale::against : heddle::scale::choose)(argv[i]);
  return 0;
}
