// What differs from one MPI's ABI to another's: what its handles are, and which of them are predefined. All else here is MPI's API.
#pragma once

#include "interpose/backend/host_mpi.hpp"

#ifdef OPEN_MPI
#include "interpose/backend/abi_open_mpi.hpp"
#else
#include "interpose/backend/abi_mpich.hpp"
#endif
