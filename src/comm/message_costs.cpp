#include "comm/message_costs.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSlowMiddleNs = 2e6;

// The median of `rounds` messages there and back, halved. The first is not timed: connections may be made for it.
Status time_size(const Exchange& exchange, bool first, std::vector<std::byte>& data, std::size_t bytes,
                 int rounds, double* ns) {
  std::vector<double> times;
  for (int i = 0; i <= rounds; ++i) {
    const auto start = Clock::now();
    HEDDLE_TRY(exchange(first, data.data(), bytes));
    HEDDLE_TRY(exchange(!first, data.data(), bytes));
    if (i > 0) times.push_back(std::chrono::duration<double, std::nano>(Clock::now() - start).count() / 2);
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  *ns = times[static_cast<std::size_t>(rounds) / 2];
  return {};
}

}  // namespace

LinearCost fit_message_cost(const MessageTimes& times) {
  constexpr auto kMiddle = static_cast<double>(MessageTimes::kMiddle);
  constexpr auto kLarge = static_cast<double>(MessageTimes::kLarge);
  const double slope = times.large_ns > 0 ? (times.large_ns - times.middle_ns) / (kLarge - kMiddle)
                                          : (times.middle_ns - times.small_ns) / kMiddle;
  const double per_byte = std::max(slope, 0.0);
  return {std::max(times.small_ns, times.middle_ns - per_byte * kMiddle), per_byte};
}

Result<MessageTimes> time_messages(const Exchange& exchange, bool first) {
  MessageTimes times;
  std::vector<std::byte> data(MessageTimes::kLarge);
  HEDDLE_TRY(time_size(exchange, first, data, MessageTimes::kSmall, 7, &times.small_ns));
  HEDDLE_TRY(time_size(exchange, first, data, MessageTimes::kMiddle, 3, &times.middle_ns));
  // The first decides for both.
  data[0] = std::byte{times.middle_ns < kSlowMiddleNs};
  HEDDLE_TRY(exchange(first, data.data(), 1));
  if (data[0] != std::byte{0}) {
    HEDDLE_TRY(time_size(exchange, first, data, MessageTimes::kLarge, 3, &times.large_ns));
  }
  return times;
}

}  // namespace heddle
