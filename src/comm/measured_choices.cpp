#include "comm/measured_choices.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace heddle {
namespace {

// What is tried, and up to where that counts: to the end of a size class (plan_cache.hpp), since a class has one choice.
struct Size {
  std::size_t bytes;
  std::int64_t up_to;
};
constexpr Size kSizes[] = {{64, 255},      {1024, 2047},    {4096, 8191},     {8192, 16383},
                           {16384, 32767}, {65536, 131071}, {262144, 524287}, {1048576, INT64_MAX}};

constexpr int kTurns = 7;
constexpr int kWarmUpTurns = 2;  // pages and lines that nobody has touched yet make the first ones slow
constexpr int kWins = 4;         // of the turns that count
constexpr std::size_t kMostInTheFinal = 4;
constexpr double kHopeless = 1.5;       // times the fastest in the first round
constexpr double kWorthwhile = 0.93;    // of the first candidate's time
constexpr double kBlockSeconds = 2e-4;  // of one turn of one candidate
constexpr int kMostTimes = 16;

struct Contender {
  Choice choice;
  double first_round = 0;
  std::array<double, kTurns - kWarmUpTurns> turns{};

  double median() const {
    auto sorted = turns;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  bool clearly_beats(const Contender& other) const {
    int wins = 0;
    for (std::size_t i = 0; i < turns.size(); ++i)
      wins += turns[i] < kWorthwhile * other.turns[i] ? 1 : 0;
    return wins >= kWins;
  }
};

class Search {
 public:
  explicit Search(const ChoiceTrial& trial) : trial_(trial) {}

  bool over() const { return spent_ > std::chrono::duration<double>(trial_.budget).count(); }
  // The winner; of no use when the budget is spent meanwhile.
  Result<Choice> best(Collective collective, std::size_t bytes);

 private:
  Result<double> time(Collective collective, const Choice& choice, std::size_t bytes, int times) {
    Result<double> seconds = trial_.time(collective, choice, bytes, times);
    // The same on every rank, other than what a clock says. One more than `times` for coming together.
    if (seconds.ok()) spent_ += seconds.value() * (times + 1) / times;
    return seconds;
  }
  Result<std::vector<Contender>> finalists(Collective collective, std::size_t bytes);

  const ChoiceTrial& trial_;
  double spent_ = 0;
};

Result<std::vector<Contender>> Search::finalists(Collective collective, std::size_t bytes) {
  std::vector<Contender> all;
  for (const Choice& choice : trial_.candidates(collective, bytes)) {
    if (over()) return all;
    const Result<double> seconds = time(collective, choice, bytes, 1);
    if (!seconds.ok()) return seconds.status();
    all.push_back({choice, seconds.value()});
  }
  if (all.size() < 2) return all;
  const auto faster = [](const Contender& a, const Contender& b) { return a.first_round < b.first_round; };
  std::stable_sort(all.begin() + 1, all.end(), faster);
  const double limit = kHopeless * std::min(all[0].first_round, all[1].first_round);
  std::size_t keep = 1;
  while (keep < std::min(all.size(), kMostInTheFinal) && all[keep].first_round <= limit)
    ++keep;
  all.resize(keep);
  return all;
}

Result<Choice> Search::best(Collective collective, std::size_t bytes) {
  Result<std::vector<Contender>> found = finalists(collective, bytes);
  if (!found.ok()) return found.status();
  std::vector<Contender>& all = found.value();
  if (all.empty()) return Choice{};
  const double fastest = std::min_element(all.begin(), all.end(), [](const Contender& a, const Contender& b) {
                           return a.first_round < b.first_round;
                         })->first_round;
  const double fit = kBlockSeconds / std::max(fastest, 1e-9);
  const int times = std::clamp(static_cast<int>(std::min(fit, 1e6)), 1, kMostTimes);
  for (int turn = 0; turn < kTurns && all.size() > 1; ++turn) {
    for (Contender& contender : all) {
      if (over()) return Choice{};
      const Result<double> seconds = time(collective, contender.choice, bytes, times);
      if (!seconds.ok()) return seconds.status();
      if (turn >= kWarmUpTurns)
        contender.turns[static_cast<std::size_t>(turn - kWarmUpTurns)] = seconds.value();
    }
  }
  const auto winner = std::min_element(
      all.begin(), all.end(), [](const Contender& a, const Contender& b) { return a.median() < b.median(); });
  return winner->clearly_beats(all[0]) ? winner->choice : all[0].choice;
}

}  // namespace

Result<MeasuredChoices> measure_choices(const ChoiceTrial& trial, std::int32_t ranks,
                                        const std::vector<Collective>& collectives) {
  MeasuredChoices measured;
  Search search(trial);
  std::int64_t from = 0;
  for (const Size& size : kSizes) {
    for (const Collective collective : collectives) {
      const Result<Choice> best = search.best(collective, size.bytes);
      if (!best.ok()) return best.status();
      if (search.over()) {
        measured.complete = false;
        return measured;
      }
      if (best.value().algorithm == nullptr) continue;
      TuningRule rule;
      rule.collective = collective;
      rule.ranks[0] = rule.ranks[1] = ranks;
      rule.nodes[0] = rule.nodes[1] = 1;
      rule.bytes[0] = from;
      rule.bytes[1] = size.up_to;
      rule.algorithm = best.value().algorithm;
      rule.shape = best.value().shape;
      measured.tuning.rules.push_back(rule);
    }
    if (size.up_to < INT64_MAX) from = size.up_to + 1;
  }
  return measured;
}

}  // namespace heddle
