// What is to come in a simulation, the earliest first.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace heddle {

// A heap of four branches each: half as deep as one of two, and the four are next to each other in memory.
// Equal times come in the order in which they were pushed, of 2^32 events at most.
class EventQueue {
 public:
  bool empty() const { return events_.size() == (taken_ ? 1 : 0); }

  // Times are not negative.
  void push(double at_ns, std::uint32_t what) {
    // As bits they compare like their values, and without a branch that nobody foresees. The sum turns a
    // negative zero into zero.
    const Event event{std::bit_cast<std::uint64_t>(at_ns + 0.0), (std::uint64_t{order_++} << 32) | what};
    if (taken_) {
      taken_ = false;
      sink(event);
      return;
    }
    events_.push_back(event);
    std::size_t at = events_.size() - 1;
    while (at > 0 && event.before(events_[(at - 1) / kBranches])) {
      events_[at] = events_[(at - 1) / kBranches];
      at = (at - 1) / kBranches;
    }
    events_[at] = event;
  }

  // Not empty.
  double next_ns() {
    settle();
    return std::bit_cast<double>(events_.front().at);
  }
  std::uint32_t pop() {
    settle();
    taken_ = true;
    return static_cast<std::uint32_t>(events_.front().order_and_what);
  }

 private:
  static constexpr std::size_t kBranches = 4;
  struct Event {
    std::uint64_t at;
    std::uint64_t order_and_what;
    bool before(const Event& o) const {
      const auto earlier = static_cast<unsigned>(at < o.at);
      const auto first =
          static_cast<unsigned>(at == o.at) & static_cast<unsigned>(order_and_what < o.order_and_what);
      return (earlier | first) != 0;
    }
  };

  // The place of the one that was taken last waits for the next push, which mostly follows.
  void settle() {
    if (!taken_) return;
    taken_ = false;
    const Event last = events_.back();
    events_.pop_back();
    if (!events_.empty()) sink(last);
  }
  // Puts it where the first one was.
  void sink(Event event) {
    std::size_t at = 0;
    for (;;) {
      const std::size_t first = at * kBranches + 1;
      if (first >= events_.size()) break;
      std::size_t least = first;
      for (std::size_t i = first + 1; i < std::min(first + kBranches, events_.size()); ++i)
        least = events_[i].before(events_[least]) ? i : least;
      if (!events_[least].before(event)) break;
      events_[at] = events_[least];
      at = least;
    }
    events_[at] = event;
  }

  std::vector<Event> events_;
  bool taken_ = false;  // the first one is no longer part of it
  std::uint32_t order_ = 0;
};

}  // namespace heddle
