// Messages over somebody else's point-to-point functions: the host MPI's, on any interconnect it has. Knows
// no MPI header: the functions come as a heddle_p2p.
#pragma once

#include <memory>

#include "heddle/heddle.h"
#include "transports/transport.hpp"

namespace heddle {

// `p2p`'s functions and context outlive the transport.
std::unique_ptr<Transport> make_mpi_transport(const heddle_p2p& p2p);

}  // namespace heddle
