#include "setup/hello.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "base/hash.hpp"
#include "base/host_identity.hpp"
#include "base/watched_process.hpp"

namespace heddle {
namespace {

constexpr std::uint32_t kMagic = 0x6864646c;  // "hddl"

constexpr const char* kSettingNames[kSharedSettings] = {
    "HEDDLE_ALGORITHM",     "HEDDLE_TUNING_FILE (its content)",
    "HEDDLE_TRANSPORTS",    "HEDDLE_SLOT_BYTES",
    "HEDDLE_SHM",           "HEDDLE_MEASURE",
    "HEDDLE_REPRODUCIBLE",  "HEDDLE_CHECK",
    "HEDDLE_SPARSE",        "HEDDLE_COMPRESS",
    "HEDDLE_COMPRESS_FROM", "HEDDLE_COMPRESS_TYPES",
    "HEDDLE_SINGLE_COPY"};

}  // namespace

Hello make_hello(const Bootstrap& bootstrap, const Config& config, const Preferences& preferences) {
  Hello hello{};
  hello.magic = kMagic;
  hello.protocol = kProtocol;
  hello.enabled = config.enable ? 1 : 0;
  hello.lends = bootstrap.make_p2p ? 1 : 0;
  hello.rank = bootstrap.rank;
  hello.size = bootstrap.size;
  hello.pid = getpid();
  hello.started = start_of_process(hello.pid);
  if (bootstrap.process) {
    hello.message_cost = bootstrap.process->message_cost();
    std::snprintf(hello.internode, sizeof hello.internode, "%s", bootstrap.process->internode().c_str());
    std::snprintf(hello.failed_networks, sizeof hello.failed_networks, "%s",
                  bootstrap.process->failed_networks().c_str());
  }
  hello.small_stores =
      bootstrap.process ? bootstrap.process->small_stores.load(std::memory_order_relaxed) : 0;
  const HostIdentity identity = bootstrap.process ? bootstrap.process->identity() : host_identity();
  hello.node = bootstrap.node.value_or(identity.value);
  hello.kernel = bootstrap.node.value_or(identity.kernel);
  hello.pid_namespace = identity.pid_namespace;
  hello.time_namespace = identity.time_namespace;
  const std::string settings[kSharedSettings] = {
      config.algorithm,
      std::to_string(preferences.tuning_hash),
      config.transports,
      std::to_string(config.slot_bytes),
      config.shm_backing,
      config.measure ? "1" : "0",
      config.reproducible ? "1" : "0",
      std::to_string(static_cast<int>(config.check)),
      config.sparse ? "1" : "0",
      config.compress,
      std::to_string(config.compress_from),
      std::string(config.compress_f32 ? "f" : "") + (config.compress_f64 ? "d" : ""),
      config.single_copy ? (*config.single_copy ? "1" : "0") : "auto"};
  for (std::size_t i = 0; i < kSharedSettings; ++i)
    hello.settings[i] = fnv1a(settings[i]);
  hello.cores = bootstrap.process ? core_claim(bootstrap.process->quota()) : core_claim();
  // With ranks that need not be here, as if its launcher had said so.
  if (bootstrap.process && bootstrap.process->takes_turns_on(hello.cores))
    hello.cores.launched = std::max(hello.cores.launched, hello.cores.processors + 1);
  std::snprintf(hello.host, sizeof hello.host, "%s", identity.host_name.c_str());
  return hello;
}

Status check_hellos(const std::vector<Hello>& hellos) {
  for (std::size_t rank = 0; rank < hellos.size(); ++rank) {
    const Hello& h = hellos[rank];
    const std::string who = "rank " + std::to_string(rank);
    if (h.magic != kMagic || h.protocol != kProtocol) {
      return Status(Code::unsupported, who + " runs another version of heddle (protocol " +
                                           std::to_string(h.protocol) + ", here " +
                                           std::to_string(kProtocol) + "): use one build on all ranks");
    }
    if (h.rank != static_cast<int>(rank) || h.size != static_cast<int>(hellos.size())) {
      return Status(Code::invalid_argument,
                    "in the place of " + who + " of " + std::to_string(hellos.size()) +
                        " is one that was started as rank " + std::to_string(h.rank) + " of " +
                        std::to_string(h.size) +
                        ": give each rank a number of its own, and the allgather in their order");
    }
    if (h.enabled == 0)
      return Status(Code::unsupported,
                    who +
                        " has HEDDLE_ENABLE=0: unset it there, or start without heddle; only the "
                        "preload library can leave calls to an MPI");
    for (std::size_t i = 0; i < kSharedSettings; ++i) {
      if (h.settings[i] != hellos[0].settings[i]) {
        return Status(Code::unsupported, std::string(kSettingNames[i]) + " differs between rank 0 and " +
                                             who + ": set it to one value on all ranks");
      }
    }
  }
  return {};
}

std::vector<CoreClaim> claims_beside(const std::vector<Hello>& hellos, int rank) {
  const std::uint64_t kernel = hellos[static_cast<std::size_t>(rank)].kernel;
  std::vector<CoreClaim> claims;
  for (const Hello& h : hellos) {
    if (kernel == 0 || h.kernel != kernel) continue;
    claims.push_back(h.cores);
    claims.back().quota = 0;
  }
  return claims;
}

}  // namespace heddle
