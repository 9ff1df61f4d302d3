// A number that nobody else has: for names, and for what is looked for in memory that may have anything in
// it.
#pragma once

#include <sys/random.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>

#include "base/hash.hpp"

namespace heddle {

inline std::uint64_t random_number() {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, GRND_NONBLOCK) == sizeof number) return number;
  // Early after the machine's start, or where the kernel lets nobody ask.
  const auto now = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  return mix64(now ^ static_cast<std::uint64_t>(getpid()) << 32);
}

}  // namespace heddle
