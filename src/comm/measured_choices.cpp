#include "comm/measured_choices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <utility>

#include "base/median.hpp"

namespace heddle {
namespace {

constexpr int kTurns = 7;
constexpr int kWarmUpTurns = 2;  // pages and lines that nobody has touched yet make the first ones slow
constexpr int kWins = 4;         // of the turns that count
constexpr std::size_t kMostInTheFinal = 4;
constexpr double kHopeless = 1.5;     // times the fastest in the first round
constexpr double kWorthwhile = 0.93;  // of the first candidate's time

// How long one turn of one candidate is, and of how many collectives at most; the same of the first round;
// and of how many times as many those turns are in which the winner must win again.
struct Effort {
  double turn_s;
  double first_round_s;
  int most_times;
  int times_again;
};
constexpr Effort kShort{2e-4, 0, 16, 2};
constexpr Effort kThorough{5e-3, 1e-3, 1000, 1};

// What is expected to take longer than so many times the fastest is not run. Forecasts are crude.
constexpr double kHopelessForecast = 4;
// What takes less than this part of the share is run twice in the first round, since once may have been
// disturbed.
constexpr double kCheap = 0.01;
// Likewise of the first one, on which most depends, and of a second chance.
constexpr double kLittle = 0.1;
// Of the least median: as good, so that a neighbouring size's winner stays and the two share a rule.
constexpr double kAsGood = 1.03;

int times_for(double block_s, double seconds, int most) {
  const double fit = block_s / std::max(seconds, 1e-9);
  return std::clamp(static_cast<int>(std::min(fit, 1e6)), 1, most);
}

// What a candidate will take: its price, times by how much its algorithm's time was off its price when it was
// last run; where it never was, by how much the least of all was.
class Forecast {
 public:
  struct Guess {
    double seconds = 0;  // 0: unknown
    bool own = false;    // the algorithm was run
    bool old = false;    // at a much smaller size
  };
  Guess of(Collective collective, const Choice& choice, std::size_t bytes) const {
    const auto own = ratios_.find({collective, choice.algorithm});
    const auto used = own != ratios_.end() ? own : ratios_.find({collective, nullptr});
    if (used == ratios_.end()) return {};
    return {choice.price_ns * 1e-9 * used->second.value, own != ratios_.end(),
            used->second.bytes * kLongAgo < bytes};
  }
  void learn(Collective collective, const Choice& choice, std::size_t bytes, double seconds) {
    if (choice.price_ns <= 0) return;
    for (const Algorithm* of : {choice.algorithm, static_cast<const Algorithm*>(nullptr)}) {
      const double ratio = seconds / (choice.price_ns * 1e-9);
      Ratio& known = ratios_[{collective, of}];
      known = {bytes, known.bytes == bytes ? std::min(known.value, ratio) : ratio};
    }
  }

 private:
  static constexpr std::size_t kLongAgo = 16;
  struct Ratio {
    std::size_t bytes = 0;  // the last size; of several shapes there the least
    double value = 0;
  };
  std::map<std::pair<Collective, const Algorithm*>, Ratio> ratios_;  // null: of all algorithms
};

// In the final.
struct Contender {
  std::size_t index = 0;  // among the size's candidates
  std::array<double, kTurns - kWarmUpTurns> turns{};

  double median() const { return heddle::median(turns); }
  bool clearly_beats(const Contender& other) const {
    int wins = 0;
    for (std::size_t i = 0; i < turns.size(); ++i)
      wins += turns[i] < kWorthwhile * other.turns[i] ? 1 : 0;
    return wins >= kWins;
  }
};

bool less_median(const Contender& a, const Contender& b) {
  return a.median() < b.median();
}

class Search {
 public:
  Search(const ChoiceTrial& trial, const SearchPlan& plan)
      : trial_(trial),
        plan_(plan),
        effort_(plan.thorough ? kThorough : kShort),
        budget_s_(std::chrono::duration<double>(plan.budget).count()) {
    progress_.budget_s = budget_s_;
    progress_.total = plan.sizes.size() * plan.collectives.size();
  }

  double spent() const { return spent_; }
  Result<TriedSize> next(Collective collective, const TrialSize& size);

 private:
  double left() const { return limit_ - spent_; }
  bool over() const { return spent_ >= stop_; }
  Result<double> time(const TriedSize& tried, const Choice& choice, int times);
  Status first_round(TriedSize& tried);
  std::vector<std::size_t> by_forecast(const TriedSize& tried) const;
  bool worth_running(TriedSize& tried, std::size_t index, double fastest) const;
  static std::vector<Contender> finalists(const TriedSize& tried);
  double cost(const TriedSize& tried, const std::vector<Contender>& all, int times) const;
  Result<bool> run_turns(TriedSize& tried, std::vector<Contender>& all, int times);
  const Contender& winner_of(const TriedSize& tried, const std::vector<Contender>& all) const;
  Status hold_final(TriedSize& tried, std::vector<Contender>& all);

  const ChoiceTrial& trial_;
  const SearchPlan& plan_;
  Effort effort_;
  double budget_s_;
  double spent_ = 0;
  double limit_ = 0;  // of `spent_`, for the pair at hand
  double stop_ = 0;   // likewise, where times were longer than forecast
  TrialProgress progress_;
  Forecast forecast_;
  std::map<Collective, Choice> previous_;  // what won the size before
};

Result<double> Search::time(const TriedSize& tried, const Choice& choice, int times) {
  if (plan_.progress) {
    progress_.collective = tried.collective;
    progress_.bytes = tried.size.bytes;
    progress_.choice = choice;
    progress_.spent_s = spent_;
    plan_.progress(progress_);
  }
  const Result<Timing> timing = trial_.time(tried.collective, choice, tried.size.bytes, times);
  if (!timing.ok()) {
    return Status(timing.status().code(),
                  fmt::format("{} of {} bytes by {} (radix {}, chunks {}, leaders {}): {}",
                              collective_name(tried.collective), tried.size.bytes, choice.algorithm->name,
                              choice.shape.radix, choice.shape.chunks, choice.shape.leaders,
                              timing.status().message()));
  }
  spent_ += timing.value().spent;
  return timing.value().seconds / times;
}

// Whom to run after the first one: in the order of the forecasts, since the share may end on the way.
std::vector<std::size_t> Search::by_forecast(const TriedSize& tried) const {
  std::vector<std::size_t> order;
  for (std::size_t i = 1; i < tried.candidates.size(); ++i)
    order.push_back(i);
  if (!plan_.thorough) return order;
  const auto expected = [&](std::size_t i) {
    return forecast_.of(tried.collective, tried.candidates[i].choice, tried.size.bytes).seconds;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return expected(a) < expected(b); });
  return order;
}

bool Search::worth_running(TriedSize& tried, std::size_t index, double fastest) const {
  if (!plan_.thorough) return true;
  TriedCandidate& candidate = tried.candidates[index];
  const Forecast::Guess guess = forecast_.of(tried.collective, candidate.choice, tried.size.bytes);
  const double cost = 2 * guess.seconds;  // once for coming together
  // Nobody is out for ever, or by a price alone, which may be quite wrong, as long as asking costs little.
  const bool again = guess.own ? guess.old && cost < kLittle * left() : cost < kCheap * left();
  if (guess.seconds > kHopelessForecast * fastest && !again) {
    candidate.outcome = TrialOutcome::hopeless;
    return false;
  }
  return cost < left();
}

Status Search::first_round(TriedSize& tried) {
  double fastest = std::numeric_limits<double>::infinity();
  double block_s = effort_.first_round_s;
  if (plan_.thorough)
    block_s = std::min(block_s, left() / (4 * static_cast<double>(tried.candidates.size())));
  const auto run = [&](std::size_t index) -> Status {
    TriedCandidate& candidate = tried.candidates[index];
    if (over() || !worth_running(tried, index, fastest)) return {};
    const double guess = forecast_.of(tried.collective, candidate.choice, tried.size.bytes).seconds;
    const double expected = std::max(fastest < 1e9 ? fastest : 0.0, guess);
    const int times = expected > 0 ? times_for(block_s, expected, effort_.most_times) : 1;
    Result<double> seconds = time(tried, candidate.choice, times);
    if (!seconds.ok()) return seconds.status();
    candidate.seconds = seconds.value();
    const double cheap_s = (index == 0 ? kLittle : kCheap) * left();
    if (plan_.thorough && seconds.value() * (times + 1) < cheap_s) {
      seconds = time(tried, candidate.choice, times);
      if (!seconds.ok()) return seconds.status();
      candidate.seconds = std::min(candidate.seconds, seconds.value());
    }
    candidate.outcome = TrialOutcome::timed;
    fastest = std::min(fastest, candidate.seconds);
    forecast_.learn(tried.collective, candidate.choice, tried.size.bytes, candidate.seconds);
    return {};
  };
  HEDDLE_TRY(run(0));
  // Without the first one there is nothing to compare with.
  if (tried.candidates[0].outcome != TrialOutcome::timed) return {};
  for (const std::size_t index : by_forecast(tried))
    HEDDLE_TRY(run(index));
  return {};
}

// The first one and the fastest of those near the fastest.
std::vector<Contender> Search::finalists(const TriedSize& tried) {
  const std::vector<TriedCandidate>& all = tried.candidates;
  std::vector<std::size_t> others;
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i].outcome == TrialOutcome::timed) others.push_back(i);
  }
  std::stable_sort(others.begin(), others.end(),
                   [&](std::size_t a, std::size_t b) { return all[a].seconds < all[b].seconds; });
  std::vector<Contender> found{Contender{0}};
  if (others.empty()) return found;
  const double limit = kHopeless * std::min(all[0].seconds, all[others.front()].seconds);
  for (const std::size_t index : others) {
    if (found.size() < kMostInTheFinal && all[index].seconds <= limit) found.push_back(Contender{index});
  }
  return found;
}

// The seconds of all turns, with those in which the winner must win again.
double Search::cost(const TriedSize& tried, const std::vector<Contender>& all, int times) const {
  const auto turns_of = [&](const Contender& contender) {
    return kTurns * (times + 1) * tried.candidates[contender.index].seconds;
  };
  double sum = 0;
  double longest = 0;
  for (const Contender& contender : all) {
    sum += turns_of(contender);
    if (contender.index != 0) longest = std::max(longest, turns_of(contender));
  }
  return sum + turns_of(all.front()) + longest;
}

// False: the time is over.
Result<bool> Search::run_turns(TriedSize& tried, std::vector<Contender>& all, int times) {
  for (int turn = 0; turn < kTurns; ++turn) {
    // One way, then the other: nobody runs behind the same rival always.
    for (std::size_t i = 0; i < all.size(); ++i) {
      Contender& contender = all[turn % 2 == 0 ? i : all.size() - 1 - i];
      if (over()) return false;
      const Result<double> seconds = time(tried, tried.candidates[contender.index].choice, times);
      if (!seconds.ok()) return seconds.status();
      if (turn >= kWarmUpTurns)
        contender.turns[static_cast<std::size_t>(turn - kWarmUpTurns)] = seconds.value();
    }
  }
  for (const Contender& contender : all) {
    TriedCandidate& candidate = tried.candidates[contender.index];
    candidate.outcome = TrialOutcome::finalist;
    candidate.seconds = contender.median();
  }
  return true;
}

const Contender& Search::winner_of(const TriedSize& tried, const std::vector<Contender>& all) const {
  const Contender& least = *std::min_element(all.begin(), all.end(), less_median);
  const auto previous = previous_.find(tried.collective);
  if (plan_.thorough && previous != previous_.end()) {
    for (const Contender& contender : all) {
      const bool stays = same_choice(tried.candidates[contender.index].choice, previous->second) &&
                         contender.median() <= kAsGood * least.median();
      if (stays && contender.clearly_beats(all.front())) return contender;
    }
  }
  return least.clearly_beats(all.front()) ? least : all.front();
}

Status Search::hold_final(TriedSize& tried, std::vector<Contender>& all) {
  double fastest = std::numeric_limits<double>::infinity();
  for (const Contender& contender : all)
    fastest = std::min(fastest, tried.candidates[contender.index].seconds);
  double turn_s = effort_.turn_s;
  if (plan_.thorough) turn_s = std::min(turn_s, left() / (2 * kTurns * kMostInTheFinal));
  const int times = times_for(turn_s, fastest, effort_.most_times);
  const std::size_t rivals = all.size() - 1;
  while (plan_.thorough && all.size() > 1 && cost(tried, all, times) > left())
    all.pop_back();
  if (all.size() == 1) {
    const auto waits = [](const TriedCandidate& c) { return c.outcome == TrialOutcome::no_time; };
    tried.decided = rivals == 0 && std::none_of(tried.candidates.begin(), tried.candidates.end(), waits);
    return {};
  }
  const Result<bool> ran = run_turns(tried, all, times);
  if (!ran.ok()) return ran.status();
  if (!ran.value()) return {};
  const Contender winner = winner_of(tried, all);
  if (winner.index != 0) {
    // What somebody else did to the machine meanwhile would be taken for its ways, and by later jobs too.
    std::vector<Contender> two{all.front(), winner};
    const Result<bool> again = run_turns(tried, two, effort_.times_again * times);
    if (!again.ok()) return again.status();
    if (!again.value()) return {};
    const bool stays = two[1].clearly_beats(two[0]) && two[1].median() <= kWorthwhile * two[0].median();
    tried.winner = stays ? winner.index : 0;
  }
  tried.decided = true;
  return {};
}

Result<TriedSize> Search::next(Collective collective, const TrialSize& size) {
  limit_ = stop_ = budget_s_;
  if (plan_.thorough) {
    const double share = (budget_s_ - spent_) / static_cast<double>(progress_.total - progress_.done);
    limit_ = spent_ + share;
    stop_ = std::min(budget_s_, limit_ + share);
  }
  TriedSize tried{collective, size, {}, 0, false};
  for (const Choice& choice : trial_.candidates(collective, size.bytes))
    tried.candidates.push_back({choice});
  if (!tried.candidates.empty()) {
    HEDDLE_TRY(first_round(tried));
    if (!over() && tried.candidates[0].outcome == TrialOutcome::timed) {
      std::vector<Contender> all = finalists(tried);
      HEDDLE_TRY(hold_final(tried, all));
    }
  }
  previous_.erase(collective);
  if (tried.decided && tried.winner != 0) previous_[collective] = tried.candidates[tried.winner].choice;
  ++progress_.done;
  return tried;
}

}  // namespace

Result<MeasuredChoices> measure_choices(const ChoiceTrial& trial, const SearchPlan& plan) {
  MeasuredChoices measured;
  Search search(trial, plan);
  for (const TrialSize& size : plan.sizes) {
    for (const Collective collective : plan.collectives) {
      Result<TriedSize> tried = search.next(collective, size);
      if (!tried.ok()) return tried.status();
      measured.spent_s = search.spent();
      const bool any = !tried->candidates.empty();
      if (any && !tried->decided) measured.complete = false;
      measured.sizes.push_back(std::move(tried).value());
      if (!measured.complete && !plan.thorough) break;
    }
    if (!measured.complete && !plan.thorough) break;
  }
  measured.tuning.rules = rules_of(measured.sizes, plan);
  return measured;
}

}  // namespace heddle
