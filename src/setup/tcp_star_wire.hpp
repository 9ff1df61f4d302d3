// What ranks say to each other during the start over TCP.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace heddle::star {

// "heddle" and a format version; sent in the machine's byte order, so another byte order does not match.
constexpr std::uint64_t kMagic = 0x656c646465680001ULL;
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kLongestText = 2048;
// Rank 0's message, which names the missing ranks, is worth waiting for beyond one's own deadline.
constexpr std::chrono::milliseconds kGrace{2000};

// From who connects to rank 0.
struct Greeting {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint32_t job = 0;  // a hash of what names the job; 0: nothing does
};

enum Kind : std::uint32_t { kWelcome = 1, kGo = 2, kData = 3, kError = 4 };

struct Frame {
  std::uint64_t magic = kMagic;
  std::uint32_t kind = 0;
  std::uint32_t sequence = 0;  // kError: the status code
  std::uint64_t bytes = 0;
};

}  // namespace heddle::star
