#include "transports/verbs/handshake.hpp"

#include <algorithm>

namespace heddle::verbs {
namespace {

constexpr std::chrono::milliseconds kFirstInterval{20};
constexpr std::chrono::milliseconds kLongestInterval{500};

}  // namespace

void Handshake::say_at(Clock::time_point now) {
  interval_ = interval_.count() == 0 ? kFirstInterval : std::min(2 * interval_, kLongestInterval);
  again_ = now + interval_;
}

Handshake::Next Handshake::begin(Clock::time_point now) {
  if (begun_) return {};
  begun_ = true;
  begin_ = now;
  say_at(now);
  return {.say = true};
}

Handshake::Next Handshake::heard(const Hello& hello, Clock::time_point now) {
  if (!begun_) begin(now);
  Next next;
  if (stage_ == Stage::calling) {
    queue_pair_ = hello.queue_pair;
    stage_ = Stage::known;
    next.connect = true;
  } else if (queue_pair_ != hello.queue_pair) {
    return {.broken = true};
  }
  if (hello.stage != Stage::calling) stage_ = Stage::open;
  next.say = hello.stage != Stage::open;
  return next;
}

Handshake::Next Handshake::tick(Clock::time_point now) {
  if (!begun_ || stage_ == Stage::open || now < again_) return {};
  say_at(now);
  return {.say = true};
}

}  // namespace heddle::verbs
