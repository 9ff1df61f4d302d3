// What every algorithm would cost on a machine that is described, not at hand.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/status.hpp"
#include "schedule/schedule.hpp"

namespace heddle::info {

struct DescribedMachine {
  int nodes = 1;
  int ranks_per_node = 2;
  double latency_us = 2;  // of a small message between nodes, one way
  double gbit = 100;      // of a node's link, in 1e9 bits a second, each way
  // How many times as long a message takes while all nodes send far: MessageCost's, that communicators
  // measure.
  double crossing = 1;
};

// One algorithm at one size, in the cheapest of the shapes that the catalog suggests for it.
struct PricedAlgorithm {
  std::string name;
  int radix = 0;
  std::uint32_t chunks = 0;
  std::uint32_t leaders = 0;
  double us = 0;
};

struct ExplainedSize {
  Collective collective = Collective::allreduce;
  std::size_t bytes = 0;
  std::string
      choice;  // not the cheapest where a setting says otherwise, or where a simpler one costs hardly more
  std::string by;                           // "price", or the setting that decided
  std::vector<PricedAlgorithm> candidates;  // the cheapest first
};

// Sizes from 8 B to `largest`, by powers of four. A setting that is wrong counts as unset, as in a job.
Result<std::vector<ExplainedSize>> explain(const DescribedMachine& machine, std::size_t largest,
                                           const Config& config);

std::string as_text(const DescribedMachine& machine, const std::vector<ExplainedSize>& sizes);
std::string as_json(const DescribedMachine& machine, const std::vector<ExplainedSize>& sizes);

}  // namespace heddle::info
