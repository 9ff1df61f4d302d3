// What differs from one MPI's ABI to another's: what its handles are, and which of them are predefined. All
// else here is MPI's API.
#pragma once

#include "interpose/backend/host_mpi.hpp"

#if defined(MPI_ABI)  // as the compiler wrappers of that ABI define it
#include "interpose/backend/abi_standard.hpp"
#elif defined(OPEN_MPI)
#include "interpose/backend/abi_open_mpi.hpp"
#else
#include "interpose/backend/abi_mpich.hpp"
#endif
