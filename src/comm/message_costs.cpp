#include "comm/message_costs.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

namespace heddle {
namespace {

constexpr double kSlowMiddleNs = 2e6;
// So far apart that each message is a wait: a few have to do. Longer than turns on a busy core.
constexpr double kFarNs = 5e7;
// By then it is what it is.
constexpr double kLongEnoughNs = 5e7;

// Rounds of messages of some size, timed some at a time.
struct Series {
  std::size_t bytes;
  int messages;       // of a round, before one comes back
  std::size_t count;  // of rounds at a time
  std::size_t place;  // of these the one counts that so many are faster than
  std::size_t alike;  // and no rank was disturbed where as many more took hardly longer than the fastest
  double suspicious_ns = std::numeric_limits<double>::infinity();  // a round that takes longer was disturbed
};

class Stopwatch {
 public:
  Stopwatch(const Exchange& exchange, bool first, const Clock& clock)
      : exchange_(exchange), first_(first), clock_(clock), data_(MessageTimes::kLarge) {}

  // What the first of the two thinks.
  Result<bool> agree_on(bool opinion) {
    std::byte agreed{opinion};
    HEDDLE_TRY(exchange_(first_, &agreed, sizeof agreed));
    return agreed != std::byte{0};
  }

  // Nanoseconds of a round. The first is not timed: connections may be made for it, and a partner be late.
  // What others do on the cores meanwhile only adds: the least of several times counts, until one of them
  // shows nothing of it.
  Result<double> least(const Series& series) {
    constexpr double kHardlyLonger = 1.25;
    HEDDLE_TRY(round(series).status());
    const TimePoint start = now(clock_);
    const Result<double> second = round(series);
    HEDDLE_TRY(second.status());
    const Result<bool> far = agree_on(second.value() > kFarNs);
    HEDDLE_TRY(far.status());
    if (far.value()) return second;
    double least_ns = std::numeric_limits<double>::infinity();
    for (std::vector<double> times{second.value()};; times.clear()) {
      while (times.size() < series.count) {
        const Result<double> time = round(series);
        HEDDLE_TRY(time.status());
        times.push_back(time.value());
      }
      std::sort(times.begin(), times.end());
      least_ns = std::min(least_ns, times[series.place]);
      const bool disturbed =
          times[series.alike] > kHardlyLonger * times.front() || least_ns > series.suspicious_ns;
      const Result<bool> again = agree_on(disturbed && since(start) < kLongEnoughNs);
      HEDDLE_TRY(again.status());
      if (!again.value()) return least_ns;
    }
  }

 private:
  double since(TimePoint start) const {
    return std::chrono::duration<double, std::nano>(now(clock_) - start).count();
  }

  Result<double> round(const Series& series) {
    const TimePoint start = now(clock_);
    for (int i = 0; i < series.messages; ++i)
      HEDDLE_TRY(exchange_(first_, data_.data(), series.bytes));
    HEDDLE_TRY(exchange_(!first_, data_.data(), series.bytes));
    return since(start);
  }

  const Exchange& exchange_;
  bool first_;
  const Clock& clock_;
  std::vector<std::byte> data_;
};

}  // namespace

MessageCost fit_message_cost(const MessageTimes& times) {
  constexpr auto kMiddle = static_cast<double>(MessageTimes::kMiddle);
  constexpr auto kLarge = static_cast<double>(MessageTimes::kLarge);
  const double slope = times.large_ns > 0 ? (times.large_ns - times.middle_ns) / (kLarge - kMiddle)
                                          : (times.middle_ns - times.small_ns) / kMiddle;
  const double per_byte = std::max(slope, 0.0);
  const double fixed = std::max(times.small_ns, times.middle_ns - per_byte * kMiddle);
  return {fixed, per_byte, std::min(times.handling_ns, fixed / 2)};
}

// Of long ones some may go faster than the link, where it is shaped and was idle: the middle one counts.
Result<MessageTimes> time_messages(const Exchange& exchange, bool first, const Clock& clock) {
  // All as long as a turn on a core, which both may have to share for a while.
  constexpr double kTwoTurnsNs = 6e5;
  constexpr int kInARow = 9;
  MessageTimes times;
  Stopwatch watch(exchange, first, clock);
  const Result<double> small = watch.least({MessageTimes::kSmall, 1, 7, 0, 2, kTwoTurnsNs});
  HEDDLE_TRY(small.status());
  times.small_ns = small.value() / 2;
  // Several small messages in a row and one back take longer than one there and one back by what the others
  // keep an end busy; which is next to nothing of those that go far.
  const Result<bool> near = watch.agree_on(small.value() < kFarNs);
  HEDDLE_TRY(near.status());
  if (near.value()) {
    const Result<double> row = watch.least({MessageTimes::kSmall, kInARow, 3, 0, 1});
    HEDDLE_TRY(row.status());
    times.handling_ns = std::max(0.0, (row.value() - small.value()) / (kInARow - 1));
  }
  const Result<double> middle = watch.least({MessageTimes::kMiddle, 1, 3, 0, 1});
  HEDDLE_TRY(middle.status());
  times.middle_ns = middle.value() / 2;
  const Result<bool> fast = watch.agree_on(times.middle_ns < kSlowMiddleNs);
  HEDDLE_TRY(fast.status());
  if (!fast.value()) return times;
  const Result<double> large = watch.least({MessageTimes::kLarge, 1, 3, 1, 1});
  HEDDLE_TRY(large.status());
  times.large_ns = large.value() / 2;
  return times;
}

}  // namespace heddle
