// What a communicator finds out about its machine and its network when it is made.
#pragma once

#include <cstdint>
#include <string>

#include "base/config.hpp"
#include "base/status.hpp"
#include "comm/choice_cache.hpp"
#include "comm/measured_choices.hpp"
#include "comm/trials.hpp"
#include "select/selector.hpp"
#include "setup/bootstrap.hpp"
#include "transports/shm/shm_team.hpp"

namespace heddle {

class CommunicatorImpl;
struct Connections;

// Of one that is connected and not yet used; `bootstrap` and `config` as it was made from. What is found the
// communicator has, and its process, for later ones.
class Learning {
 public:
  Learning(CommunicatorImpl& comm, const Bootstrap& bootstrap, const Config& config);
  // Collective. A failure is one on all ranks.
  Status run();

 private:
  // Within nodes: how small payloads are best written, and whether bcasts are copied once.
  Status stores();
  Status single_copy(const ShmTeam& team);
  Result<bool> try_single_copy(const ShmTeam& team);
  void copy_once(bool on);
  Result<std::uint64_t> least_on_node(std::uint64_t mine);
  // Between nodes: what messages cost, if it is not known yet. Measured between the first ranks of two nodes,
  // then among all; the latter again by a communicator that is much larger than the one that did so.
  Status messages();
  Status message_cost();
  bool outgrown() const;
  Status crowding();
  Status crossing();
  // Which algorithm serves which size best on this one node: from before, or by trying them.
  bool can_try_choices() const;
  Status choices();
  Status measure(const ChoiceCache& cache, const std::string& key, const Tuning* earlier);
  SearchPlan plan() const;
  Result<MeasuredChoices> try_choices();
  Result<std::size_t> try_streaming();
  std::string choice_key() const;
  std::string known_choices(const ChoiceCache& cache, const std::string& key);
  Status share(std::string& text);
  void use(Tuning measured);

  CommunicatorImpl& comm_;
  Connections& connections_;  // its own
  const Bootstrap& bootstrap_;
  const Config& config_;
  Trials trials_;
};

}  // namespace heddle
