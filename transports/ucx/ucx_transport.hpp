// Messages by UCX's tag matching, over endpoints made on demand.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "transports/transport.hpp"
#include "transports/ucx/ucx_worker.hpp"

namespace heddle {

// What a rank tells the others.
struct UcxAddress {
  std::string host;
  std::string worker;
};

// The ranks this one may talk to, and those that it does talk to.
struct UcxFootprint {
  std::size_t endpoints = 0;
  std::string lanes;  // of the first endpoint: "tcp/eth0"; "" without one, or where UCX does not tell
};

class UcxTransport : public Transport {
 public:
  virtual UcxFootprint footprint() const = 0;
};

// `addresses` by rank, empty for those that are not reached this way. `worker` outlives the transport, which
// destroys what is in it.
Result<std::unique_ptr<UcxTransport>> make_ucx_transport(UcxWorker& worker, int rank,
                                                         std::vector<UcxAddress> addresses);

}  // namespace heddle
