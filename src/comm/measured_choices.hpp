// Which algorithm serves which size best, found by trying them: when a communicator is made, and for a tuning
// file.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.hpp"
#include "select/selector.hpp"

namespace heddle {

// What is tried; the winner serves `from` to `up_to` bytes, which are whole size classes (plan_cache.hpp),
// since a class has one choice.
struct TrialSize {
  std::size_t bytes = 0;
  std::int64_t from = 0;
  std::int64_t up_to = INT64_MAX;
};

// Eight, which stand for all.
std::vector<TrialSize> start_up_sizes();
// One for each size class, tried at its least size: powers of two from `least` to `most`, which are such.
std::vector<TrialSize> every_class(std::size_t least, std::size_t most);

struct Timing {
  double seconds = 0;  // that the slowest rank takes for the collectives
  double spent = 0;    // with all that came before them: what the budget pays
};

// What trying needs of a communicator. Every rank gets the same answers, so that all decide alike.
struct ChoiceTrial {
  // The first is the one that the others must clearly beat. A thorough search wants prices.
  std::function<std::vector<Choice>(Collective collective, std::size_t bytes)> candidates;
  // Of `times` collectives, before which the ranks come together.
  std::function<Result<Timing>(Collective collective, const Choice& choice, std::size_t bytes, int times)>
      time;
};

// What is about to be timed.
struct TrialProgress {
  Collective collective = Collective::allreduce;
  std::size_t bytes = 0;
  Choice choice;
  std::size_t done = 0;  // pairs of size and collective
  std::size_t total = 0;
  double spent_s = 0;
  double budget_s = 0;
};

struct SearchPlan {
  std::int32_t ranks = 1;  // of rules
  std::int32_t nodes = 1;
  std::vector<Collective> collectives;
  std::vector<TrialSize> sizes = start_up_sizes();  // rising
  std::chrono::microseconds budget{150'000};
  // Of a short search the first one serves where nothing beats it, and sizes for which no time is left have
  // no rule. A thorough one is for a tuning file:
  // - each pair of size and collective has an equal share of what is left, so that the last ones get theirs;
  // - candidates that price and smaller sizes say are hopeless, or take longer than the share, are not run;
  // - turns are longer;
  // - the first one is what serves without a rule: where it wins, there is none.
  bool thorough = false;
  std::function<void(const TrialProgress&)> progress;  // may be null
};

enum class TrialOutcome : std::uint8_t {
  finalist,  // in the final; `seconds` is the median of its turns
  timed,     // in the first round alone
  hopeless,  // not run: expected to take several times as long as the fastest
  no_time    // not run: expected to take longer than the share
};

struct TriedCandidate {
  Choice choice;
  TrialOutcome outcome = TrialOutcome::no_time;
  double seconds = 0;  // of one collective
};

struct TriedSize {
  Collective collective = Collective::allreduce;
  TrialSize size;
  std::vector<TriedCandidate> candidates;  // the first one first; empty: nothing can serve it
  std::size_t winner = 0;                  // 0 as well where nothing is decided
  bool decided = false;                    // false: there was no time
};

struct MeasuredChoices {
  Tuning
      tuning;  // rules for this number of ranks and nodes; neighbouring sizes with one choice have one rule
  bool complete = true;  // false: the budget was too small for some sizes
  std::vector<TriedSize> sizes;
  double spent_s = 0;
  double without_core = 0;  // the share of it for which some rank was without its core
};

// From this share on what was measured says more of who else runs there. Ranks that try algorithms never
// sleep, so whoever is without a core for longer has to share it.
inline constexpr double kWithoutCore = 0.1;

// Collective. Every candidate runs; then the first and the three fastest of those within half of the fastest
// run by turns. The one with the least median replaces the first only when it took at least 7% less in four
// turns of five, and again so in turns of these two alone. A failure of `time` ends it; the status says what
// was timed.
Result<MeasuredChoices> measure_choices(const ChoiceTrial& trial, const SearchPlan& plan);

// Neighbouring sizes with one choice have one rule.
std::vector<TuningRule> rules_of(const std::vector<TriedSize>& sizes, const SearchPlan& plan);

// Whether another than the first one serves any size.
bool anything_won(const MeasuredChoices& measured);

// The first one serves again where `earlier`, the rules of another such search, do not have the same winner.
// What disturbs a process for as long as it lives, as where its pages came to lie, is taken for the machine's
// ways by all turns of one search.
void confirm(MeasuredChoices& measured, const SearchPlan& plan, const Tuning& earlier);

// The same algorithm in the same shape, whatever its price.
bool same_choice(const Choice& a, const Choice& b);

}  // namespace heddle
