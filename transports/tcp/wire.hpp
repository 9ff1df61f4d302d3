// What goes over a connection: once who connects and whether it may, then frames, each with the bytes of its
// message behind it.
//
// Messages up to kEager go when they are sent, and wait at the receiver where its receive is not open yet.
// Longer ones go when the receiver has said that its receive is open, so that they never wait in memory: it
// says so unasked when it opens one, and who sends without having heard of it announces the message, from
// which the receiver learns its length.
//
// All hosts of a communicator have the byte order of the first (setup/hello.hpp): numbers travel as they lie.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::tcp {

constexpr std::size_t kEager = std::size_t{256} << 10;

constexpr std::uint32_t kMagic = 0x68656474;
// Of a greeting that is to be taken although the listener's own is on its way: connecting.cpp says when.
constexpr std::uint32_t kInsists = kMagic + 3;

// From who connects to who listens.
struct Greeting {
  std::uint32_t magic;  // kMagic or kInsists
  std::uint32_t rank;   // of who connects
  std::uint64_t key;    // of who listens
};

// Back. A pair of ranks that connect to each other at the same time keeps the connection of the lower rank,
// unless the higher one insists.
enum class Answer : std::uint32_t { welcome = kMagic + 1, mine_is_on_its_way = kMagic + 2 };

enum class Kind : std::uint32_t {
  data = 1,      // `bytes` of a message follow
  announce = 2,  // a message of `bytes`, longer than kEager, waits for its receive
  ready = 3,     // the receive of a message longer than kEager is open
  farewell =
      4,  // the sender has failed because the rank in `tag` had, or had not come within `bytes` milliseconds
};

struct Frame {
  Kind kind;
  std::uint32_t tag;
  std::uint64_t bytes;
};

}  // namespace heddle::tcp
