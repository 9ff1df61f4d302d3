// What pricing at scale costs, and how far it is from running all ranks: no simulator, no messages.
//
//     price_study exact RANKS...      both prices of every allreduce and bcast, where all ranks can be run
//     price_study choose RANKS...     the choice at each size: time, and memory of the process
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "schedule/pricer.hpp"
#include "select/selector.hpp"

namespace heddle::scale {
namespace {

constexpr std::size_t kSizes[] = {8, 1 << 10, 32 << 10, 1 << 20, 16 << 20};
constexpr MessageCost kMessage{1400, 0.08, 200};

using SteadyClock = std::chrono::steady_clock;
double ms_since(SteadyClock::time_point start) {
  return std::chrono::duration<double, std::milli>(SteadyClock::now() - start).count();
}

double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

CostModel model() {
  return default_cost_model({400, 0.1}, kMessage, false);
}

void exact(std::int32_t ranks) {
  const TopologyView topology = TopologyView::flat(ranks);
  const Preferences nothing;
  const Selector selector(topology, model(), {false, true}, nothing);
  for (const Collective collective : {Collective::allreduce, Collective::bcast}) {
    for (const std::size_t bytes : kSizes) {
      for (const Choice& c : selector.candidates(collective, bytes, false)) {
        auto start = SteadyClock::now();
        const double estimated_ns = selector.price_of(c, bytes);
        const double estimate_ms = ms_since(start);
        start = SteadyClock::now();
        const double exact_ns = price(
            topology, [&](std::int32_t rank) { return c.algorithm->build(topology, rank, c.shape); }, bytes,
            model());
        std::printf("exact %d %s %zu %s %d %u %.1f %.1f %.3f %.3f\n", ranks, collective_name(collective),
                    bytes, c.algorithm->name, c.shape.radix, c.shape.chunks, exact_ns, estimated_ns,
                    ms_since(start), estimate_ms);
        std::fflush(stdout);
      }
    }
  }
}

void choose(std::int32_t ranks) {
  auto start = SteadyClock::now();
  const double before_mib = peak_mib();
  const TopologyView topology = TopologyView::flat(ranks);
  std::printf("topology %d %.3f %.1f\n", ranks, ms_since(start), peak_mib() - before_mib);
  const Preferences nothing;
  const Selector selector(topology, model(), {false, true}, nothing);
  for (const Collective collective : {Collective::allreduce, Collective::bcast}) {
    for (const std::size_t bytes : kSizes) {
      start = SteadyClock::now();
      const Result<Selection> chosen = selector.select(collective, bytes, false);
      const double choose_ms = ms_since(start);
      if (!chosen.ok()) std::exit(1);
      const Choice& c = chosen.value().choice;
      start = SteadyClock::now();
      const Schedule schedule = c.algorithm->build(topology, ranks / 3, c.shape);
      std::printf("choose %d %s %zu %s %d %u %.1f %.3f %.4f %zu %.1f\n", ranks, collective_name(collective),
                  bytes, c.algorithm->name, c.shape.radix, c.shape.chunks, c.price_ns, choose_ms,
                  ms_since(start), schedule.steps.size(), peak_mib());
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace heddle::scale

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  for (int i = 2; i < argc; ++i) {
    const std::int32_t ranks = std::atoi(argv[i]);
    if (std::strcmp(argv[1], "exact") == 0) {
      heddle::scale::exact(ranks);
    } else {
      heddle::scale::choose(ranks);
    }
  }
  return 0;
}
