#include "comm/message_costs.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

namespace heddle {
namespace {

constexpr double kSlowMiddleNs = 2e6;

// `rounds` messages there and back, halved, in ascending order. The first is not timed: connections may be
// made for it.
Result<std::vector<double>> time_size(const Exchange& exchange, bool first, const Clock& clock,
                                      std::vector<std::byte>& data, std::size_t bytes, int rounds) {
  std::vector<double> times;
  for (int i = 0; i <= rounds; ++i) {
    const TimePoint start = now(clock);
    HEDDLE_TRY(exchange(first, data.data(), bytes));
    HEDDLE_TRY(exchange(!first, data.data(), bytes));
    if (i > 0) times.push_back(std::chrono::duration<double, std::nano>(now(clock) - start).count() / 2);
  }
  std::sort(times.begin(), times.end());
  return times;
}

// What the first of the two thinks.
Result<bool> agree_on(const Exchange& exchange, bool first, bool opinion) {
  std::byte agreed{opinion};
  HEDDLE_TRY(exchange(first, &agreed, sizeof agreed));
  return agreed != std::byte{0};
}

// The least of some; of more where all of them took as long as a turn on a core, which both may have to share
// for a while. Between places that are far apart that is a few messages too many.
Result<double> time_small(const Exchange& exchange, bool first, const Clock& clock,
                          std::vector<std::byte>& data) {
  constexpr double kAsLongAsATurn = 3e5;
  constexpr int kAttempts = 4;
  double least_ns = std::numeric_limits<double>::infinity();
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Result<std::vector<double>> times =
        time_size(exchange, first, clock, data, MessageTimes::kSmall, 7);
    HEDDLE_TRY(times.status());
    least_ns = std::min(least_ns, times.value().front());
    const Result<bool> again = agree_on(exchange, first, least_ns > kAsLongAsATurn);
    HEDDLE_TRY(again.status());
    if (!again.value()) break;
  }
  return least_ns;
}

// Several small messages in a row and one back take longer than one there and one back by what the others
// keep an end busy.
Status time_handling(const Exchange& exchange, bool first, const Clock& clock, std::vector<std::byte>& data,
                     MessageTimes& times) {
  constexpr int kInARow = 9;
  double least_ns = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 3; ++round) {
    const TimePoint start = now(clock);
    for (int i = 0; i < kInARow; ++i)
      HEDDLE_TRY(exchange(first, data.data(), MessageTimes::kSmall));
    HEDDLE_TRY(exchange(!first, data.data(), MessageTimes::kSmall));
    least_ns = std::min(least_ns, std::chrono::duration<double, std::nano>(now(clock) - start).count());
  }
  times.handling_ns = std::max(0.0, (least_ns - 2 * times.small_ns) / (kInARow - 1));
  return {};
}

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

// What others do on the cores meanwhile only adds to a short message: the least counts. Of long ones some may
// go faster than the link, where it is shaped and was idle: the middle one counts.
Result<MessageTimes> time_messages(const Exchange& exchange, bool first, const Clock& clock) {
  MessageTimes times;
  std::vector<std::byte> data(MessageTimes::kLarge);
  const Result<double> small = time_small(exchange, first, clock, data);
  HEDDLE_TRY(small.status());
  times.small_ns = small.value();
  HEDDLE_TRY(time_handling(exchange, first, clock, data, times));
  const Result<std::vector<double>> middle =
      time_size(exchange, first, clock, data, MessageTimes::kMiddle, 3);
  HEDDLE_TRY(middle.status());
  times.middle_ns = middle.value().front();
  const Result<bool> fast = agree_on(exchange, first, times.middle_ns < kSlowMiddleNs);
  HEDDLE_TRY(fast.status());
  if (!fast.value()) return times;
  const Result<std::vector<double>> large = time_size(exchange, first, clock, data, MessageTimes::kLarge, 3);
  HEDDLE_TRY(large.status());
  times.large_ns = large.value()[1];
  return times;
}

}  // namespace heddle
