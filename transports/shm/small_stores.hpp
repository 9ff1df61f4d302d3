// How small payloads are stored for the other members, and which way is the best on this machine: that
// differs between processors by a factor of three in either direction, and no table knows them all.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "transports/team.hpp"

namespace heddle {

enum class StoreWay : std::uint8_t {
  cached,    // plain stores
  demoted,   // plain stores, each full line sent on into the shared cache (CLDEMOTE)
  streamed,  // past this core's cache
};

const char* store_way_name(StoreWay way);

// By size of the payload. Members need not agree.
struct SmallStores {
  StoreWay middle;  // from one cache line on
  StoreWay large;   // from kLargePayload on
};
inline constexpr std::size_t kLargePayload = 4096;
// As a number other than 0, and back.
inline std::uint32_t pack(const SmallStores& stores) {
  return 0x100U | static_cast<std::uint32_t>(stores.middle) << 4 | static_cast<std::uint32_t>(stores.large);
}
inline SmallStores unpack_small_stores(std::uint32_t packed) {
  return {static_cast<StoreWay>(packed >> 4 & 0xF), static_cast<StoreWay>(packed & 0xF)};
}

// Whether this processor has CLDEMOTE; elsewhere StoreWay::demoted stores plainly.
bool processor_demotes();
// What is taken unmeasured.
SmallStores default_small_stores();

// What measuring needs of a team: operations under each of the choices.
struct StoreTrial {
  std::function<void(const SmallStores&)> use;  // from the next operation on
  std::function<Status(TeamOp&)> run;           // starts the operation and waits for it
  FoldFn fold;                                  // bitwise or of bytes
  // Once a member has spent this, all stop: somebody else uses the cores, and times say nothing.
  std::chrono::microseconds budget{5000};
};

// Collective over the team, each member with a core of its own. Times bcasts under each way by turns and
// returns the fastest; ways that are less than a twentieth better than the default lose to it. Takes about
// half a millisecond for a few members; beyond the budget the default is what is found, on every member. A
// failure of `run` ends it.
Result<SmallStores> measure_small_stores(const StoreTrial& trial, int members);

}  // namespace heddle
