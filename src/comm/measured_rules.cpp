// What is tried to find choices, and the rules that come of it.
#include <algorithm>

#include "comm/measured_choices.hpp"

namespace heddle {
namespace {

// Longer by a neighbouring size, or one more.
void add_rule(std::vector<TuningRule>& rules, const TriedSize& tried, const SearchPlan& plan) {
  const Choice& choice = tried.candidates[tried.winner].choice;
  const auto last = std::find_if(rules.rbegin(), rules.rend(),
                                 [&](const TuningRule& rule) { return rule.collective == tried.collective; });
  if (last != rules.rend() && last->bytes[1] == tried.size.from - 1 &&
      same_choice({last->algorithm, last->shape, 0}, choice)) {
    last->bytes[1] = tried.size.up_to;
    return;
  }
  TuningRule rule;
  rule.collective = tried.collective;
  rule.ranks[0] = rule.ranks[1] = plan.ranks;
  rule.nodes[0] = rule.nodes[1] = plan.nodes;
  rule.bytes[0] = tried.size.from;
  rule.bytes[1] = tried.size.up_to;
  rule.algorithm = choice.algorithm;
  rule.shape = choice.shape;
  rules.push_back(rule);
}

}  // namespace

std::vector<TrialSize> start_up_sizes() {
  return {
      {64, 0, 255},          {1024, 256, 2047},      {4096, 2048, 8191},       {8192, 8192, 16383},
      {16384, 16384, 32767}, {65536, 32768, 131071}, {262144, 131072, 524287}, {1048576, 524288, INT64_MAX}};
}

std::vector<TrialSize> every_class(std::size_t least, std::size_t most) {
  std::vector<TrialSize> sizes;
  for (std::size_t bytes = least; bytes <= most && bytes != 0; bytes *= 2) {
    const auto from = static_cast<std::int64_t>(bytes);
    sizes.push_back({bytes, from, 2 * from - 1});
  }
  return sizes;
}

bool same_choice(const Choice& a, const Choice& b) {
  return a.algorithm == b.algorithm && a.shape.radix == b.shape.radix && a.shape.chunks == b.shape.chunks &&
         a.shape.leaders == b.shape.leaders;
}

std::vector<TuningRule> rules_of(const std::vector<TriedSize>& sizes, const SearchPlan& plan) {
  std::vector<TuningRule> rules;
  for (const TriedSize& tried : sizes) {
    if (tried.decided && (!plan.thorough || tried.winner != 0)) add_rule(rules, tried, plan);
  }
  return rules;
}

bool anything_won(const MeasuredChoices& measured) {
  return std::any_of(measured.sizes.begin(), measured.sizes.end(),
                     [](const TriedSize& tried) { return tried.winner != 0; });
}

void confirm(MeasuredChoices& measured, const SearchPlan& plan, const Tuning& earlier) {
  for (TriedSize& tried : measured.sizes) {
    const auto bytes = static_cast<std::int64_t>(tried.size.bytes);
    const auto names_winner = [&](const TuningRule& rule) {
      return rule.collective == tried.collective && rule.bytes[0] <= bytes && bytes <= rule.bytes[1] &&
             same_choice({rule.algorithm, rule.shape, 0}, tried.candidates[tried.winner].choice);
    };
    if (tried.winner != 0 && std::none_of(earlier.rules.begin(), earlier.rules.end(), names_winner))
      tried.winner = 0;
  }
  measured.tuning.rules = rules_of(measured.sizes, plan);
}

}  // namespace heddle
