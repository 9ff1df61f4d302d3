// Setting up a communicator: what the ranks tell each other, what they agree on, and what connects them
// afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/status.hpp"
#include "comm/bootstrap.hpp"
#include "comm/core_claim.hpp"
#include "comm/node_teams.hpp"
#include "engine/engine.hpp"
#include "schedule/pricer.hpp"
#include "schedule/topology_view.hpp"
#include "transports/network.hpp"
#include "transports/shm/shared_heap.hpp"
#include "transports/shm/shared_memory.hpp"
#include "transports/transport.hpp"

namespace heddle {

// Gives the lender's messages back, exactly once.
class LentMessages {
 public:
  explicit LentMessages(const heddle_p2p& p2p) : p2p_(p2p) {}
  LentMessages(const LentMessages&) = delete;
  LentMessages& operator=(const LentMessages&) = delete;
  ~LentMessages() {
    if (p2p_.release != nullptr) p2p_.release(p2p_.context);
  }
  const heddle_p2p& p2p() const { return p2p_; }

 private:
  heddle_p2p p2p_;
};

// Members are destroyed from the last to the first: users before what they use.
struct Connections {
  TopologyView topology = TopologyView::flat(1);
  std::vector<std::string> host_of;  // by rank
  std::vector<int> pid_of;           // by rank
  int cores = 1;                     // that the ranks of this node may use together
  std::vector<CoreClaim> claims;     // of this node's members
  bool own_core = false;             // each rank of this node can have one to itself
  SharedMemory memory;
  std::shared_ptr<ProcessState> process;  // this rank's
  std::unique_ptr<LentMessages> lent;
  ShmTeamGeometry geometry;  // of this node's teams, but for the number of members
  Teams teams;
  MessageCost message_cost;  // between nodes, the same on every rank; all 0: not known
  bool free_work = false;    // the bootstrap's
  bool measures = false;     // this node's members are to measure their SmallStores
  std::unique_ptr<Transport> shm;
  std::unique_ptr<Network> network;
  std::unique_ptr<Transport> far;        // between nodes; null: there is one node
  std::vector<std::string> passed_over;  // transports in the list before it, and why not
  Ports ports;

  CostModel cost_model() const;
};

// Collective. Every rank gets connections, or every rank the same reason (code and message) why there are
// none.
Result<std::unique_ptr<Connections>> connect(const Bootstrap& bootstrap, const Config& config);

// The same status on every rank: the first failed rank's, with its number. Collective.
Status agree(const Bootstrap& bootstrap, const Status& mine);

}  // namespace heddle
