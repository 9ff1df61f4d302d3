// The host MPI's functions, found at run time: the backend is compiled against mpi.h but linked to no MPI.
#pragma once

#define MPICH_SKIP_MPICXX 1
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include "base/status.hpp"
#include "interpose/backend_abi.h"

namespace heddle::backend {

// The MPI-3 functions that every library of this ABI has.
// (clang-format would indent it a little further each time.)
// clang-format off
#define HEDDLE_HOST_FUNCTIONS(X) \
  X(Abort) X(Allgather) X(Alloc_mem) X(Allreduce) X(Barrier) X(Bcast) X(Cancel) X(Cartdim_get) X(Comm_call_errhandler) X(Comm_compare) X(Comm_create) \
  X(Comm_create_keyval) X(Comm_delete_attr) X(Comm_free) X(Comm_get_errhandler) X(Comm_get_name) X(Comm_group) X(Comm_rank) X(Comm_remote_size) X(Comm_set_attr) \
  X(Comm_set_errhandler) X(Comm_size) X(Comm_split) X(Comm_test_inter) X(Dist_graph_neighbors_count) X(Errhandler_free) X(Error_class) X(Finalized) X(Free_mem) \
  X(Get_elements_x) X(Get_library_version) X(Graph_neighbors_count) X(Group_free) X(Group_translate_ranks) X(Iallgather) X(Ialltoallv) X(Initialized) \
  X(Iprobe) X(Irecv) X(Isend) X(Pack) X(Pack_size) X(Reduce) X(Reduce_local) X(Request_free) X(Request_get_status) \
  X(Test) X(Topo_test) X(Type_commit) X(Type_contiguous) X(Type_create_hindexed) X(Type_free) X(Type_get_contents) X(Type_get_envelope) \
  X(Type_get_extent) X(Type_get_true_extent) X(Type_size_x) X(Unpack) X(Wait)
// clang-format on

// MPI-4 functions; null where the library is older.
using AllreduceC = int (*)(const void*, void*, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm);
using BcastC = int (*)(void*, MPI_Count, MPI_Datatype, int, MPI_Comm);
using ReduceC = int (*)(const void*, void*, MPI_Count, MPI_Datatype, MPI_Op, int, MPI_Comm);
using AllgatherC = int (*)(const void*, MPI_Count, MPI_Datatype, void*, MPI_Count, MPI_Datatype, MPI_Comm);
using PackC = int (*)(const void*, MPI_Count, MPI_Datatype, void*, MPI_Count, MPI_Count*, MPI_Comm);
using UnpackC = int (*)(const void*, MPI_Count, MPI_Count*, void*, MPI_Count, MPI_Datatype, MPI_Comm);
using GetEnvelopeC = int (*)(MPI_Datatype, MPI_Count*, MPI_Count*, MPI_Count*, MPI_Count*, int*);

struct HostMpi {
#define HEDDLE_MEMBER(name) decltype(&PMPI_##name) name = nullptr;
  HEDDLE_HOST_FUNCTIONS(HEDDLE_MEMBER)
#undef HEDDLE_MEMBER
  AllreduceC Allreduce_c = nullptr;
  BcastC Bcast_c = nullptr;
  ReduceC Reduce_c = nullptr;
  AllgatherC Allgather_c = nullptr;
  PackC Pack_c = nullptr;
  UnpackC Unpack_c = nullptr;
  GetEnvelopeC Type_get_envelope_c = nullptr;
  const char* version = "";                  // what it says of itself, the first line
  const bool* tolerates_failures = nullptr;  // Open MPI 5's, known once it is initialised; null: no such MPI
};

// Fails with the name of the first function that the library lacks.
Result<HostMpi> load_host_mpi(const HeddleHostSymbols& symbols);

}  // namespace heddle::backend
