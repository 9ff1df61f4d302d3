// Setting up a communicator: what the ranks tell each other, what they agree on, and what connects them
// afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/status.hpp"
#include "engine/ports.hpp"
#include "schedule/pricer.hpp"
#include "schedule/topology_view.hpp"
#include "select/selector.hpp"
#include "setup/bootstrap.hpp"
#include "setup/core_claim.hpp"
#include "setup/internode.hpp"
#include "setup/node_teams.hpp"
#include "transports/shm/shared_memory.hpp"
#include "transports/transport.hpp"

namespace heddle {

// Members are destroyed from the last to the first: users before what they use.
struct Connections {
  TopologyView topology = TopologyView::flat(1);
  std::vector<std::string> host_of;       // by rank
  std::vector<int> pid_of;                // by rank
  std::vector<std::uint64_t> started_of;  // by rank: of those processes, start_of_process() or 0
  int cores = 1;                          // that the ranks of this node may use together
  std::vector<CoreClaim> claims;          // of this node's members
  bool own_core = false;                  // each rank of this node can have one to itself
  SharedMemory memory;
  std::shared_ptr<ProcessState> process;  // this rank's
  ShmTeamGeometry geometry;               // of this node's teams, but for the number of members
  Teams teams;
  Preferences preferences;   // as all ranks have them
  MessageCost message_cost;  // between nodes, the same on every rank; all 0: not known
  bool free_work = false;    // the bootstrap's
  bool measures = false;     // this node's members are to measure their SmallStores
  std::unique_ptr<Transport> shm;
  Internode internode;
  std::string comparison;                // with other ways between nodes, where there are some; for the log
  std::vector<std::string> passed_over;  // ways in the list before it that do not work, and why not
  Ports ports;

  CostModel cost_model() const;
};

// Collective. Every rank gets connections, or every rank the same reason (code and message) why there are
// none.
Result<std::unique_ptr<Connections>> connect(const Bootstrap& bootstrap, const Config& config);

// How a rank waits for messages, `far` those between nodes (null: there are none) and others in shared
// memory.
WaitPolicy wait_policy(const Bootstrap& bootstrap, const Config& config, const Connections& connections,
                       Transport* far);

// What every rank has, by rank. Collective.
template <typename T>
Status gather(const Bootstrap& bootstrap, const T& mine, std::vector<T>& all) {
  all.resize(static_cast<std::size_t>(bootstrap.size));
  return bootstrap.allgather(&mine, all.data(), sizeof(T));
}

// The same status on every rank: the first failed rank's, with its number. Collective.
Status agree(const Bootstrap& bootstrap, const Status& mine);

}  // namespace heddle
