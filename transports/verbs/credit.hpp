// Flow control of one connection: a side sends only what the other side has a receive open for, so that
// nothing waits for a receive in the hardware.
//
// The last credit is for returning credits alone. Without it both sides could have none, each owing the other
// all of them.
#pragma once

#include <cstdint>

namespace heddle::verbs {

class Credits {
 public:
  Credits() = default;
  // `theirs`: receives that the other side keeps open for us; `ours`: what we keep open for them.
  Credits(std::uint16_t theirs, std::uint16_t ours) : theirs_(theirs), ours_(ours), left_(theirs) {}

  bool may_send() const { return left_ > 1; }
  bool may_return() const { return left_ > 0; }
  // Enough is owed to be told by itself. Half, so that the other side does not stop meanwhile.
  bool should_return() const { return owed_ > 0 && owed_ * 2 >= ours_; }

  void sent() { --left_; }
  // What the header of the next message carries: all that is owed, which is told thereby.
  std::uint16_t take_owed() {
    const std::uint16_t owed = owed_;
    owed_ = 0;
    return owed;
  }

  // A receive was used. False: there was none, the other side sends more than it may.
  bool received() {
    if (used_ == ours_) return false;
    ++used_;
    return true;
  }
  // It is open again.
  void reopened() {
    --used_;
    ++owed_;
  }
  // The other side returned some. False: more than we ever gave.
  bool returned(std::uint16_t credits) {
    if (credits > theirs_ - left_) return false;
    left_ = static_cast<std::uint16_t>(left_ + credits);
    return true;
  }
  std::uint16_t left() const { return left_; }

 private:
  std::uint16_t theirs_ = 0;
  std::uint16_t ours_ = 0;
  std::uint16_t left_ = 0;
  std::uint16_t owed_ = 0;
  std::uint16_t used_ = 0;
};

// How much the other side may have to keep of messages that nobody has opened a receive for.
class EagerWindow {
 public:
  explicit EagerWindow(std::uint64_t bytes) : bytes_(bytes) {}
  bool fits(std::uint64_t bytes) const { return sent_ - matched_ + bytes <= bytes_; }
  void sent(std::uint64_t bytes) { sent_ += bytes; }
  // What the other side says has met receives so far. False: more than was sent, or less than it said before.
  bool told(std::uint64_t matched) {
    if (matched > sent_ || matched < matched_) return false;
    matched_ = matched;
    return true;
  }

 private:
  std::uint64_t bytes_;
  std::uint64_t sent_ = 0;
  std::uint64_t matched_ = 0;
};

}  // namespace heddle::verbs
