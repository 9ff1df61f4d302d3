// What the ranks of a new communicator tell each other, first of all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/config.hpp"
#include "base/cost.hpp"
#include "base/status.hpp"
#include "select/selector.hpp"
#include "setup/bootstrap.hpp"
#include "setup/core_claim.hpp"

namespace heddle {

// Raised whenever ranks of two builds could not work together.
constexpr std::uint32_t kProtocol = 26;

// The settings that decide how a collective runs must be the same everywhere; each travels as a hash.
constexpr std::size_t kSharedSettings = 13;

// How long it is, and its first two words, stay from protocol 24 on: a rank of another build has to be
// understood before it can be refused, by whatever means they are gathered.
constexpr std::size_t kHelloBytes = 512;

struct alignas(kHelloBytes) Hello {
  std::uint32_t magic;
  std::uint32_t protocol;
  std::uint32_t enabled;
  std::uint32_t lends;  // has messages to lend
  std::int32_t rank;
  std::int32_t size;
  std::int32_t pid;
  std::uint32_t small_stores;  // ProcessState's
  MessageCost message_cost;    // likewise
  char internode[8];           // likewise
  char failed_networks[24];    // likewise, with commas
  std::uint64_t node;
  std::uint64_t kernel;  // 0: not known
  std::uint64_t pid_namespace;
  std::uint64_t started;         // start_of_process(), which is
  std::uint64_t time_namespace;  // by the clock of this
  std::uint64_t settings[kSharedSettings];
  char host[40];
  CoreClaim cores;
};
static_assert(sizeof(Hello) == kHelloBytes);

Hello make_hello(const Bootstrap& bootstrap, const Config& config, const Preferences& preferences);

// The first reason, in rank order, why these ranks cannot use heddle together. Every rank finds the same one.
Status check_hellos(const std::vector<Hello>& hellos);

// Of all ranks under the kernel of `rank`, as far as that is known: containers may be nodes of their own, and
// yet share cores. Without quotas, which are a container's, and add to each other.
std::vector<CoreClaim> claims_beside(const std::vector<Hello>& hellos, int rank);

}  // namespace heddle
