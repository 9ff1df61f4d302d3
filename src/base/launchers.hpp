// What a process can tell of who started it, before it calls MPI and after.
#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <string_view>

namespace heddle {

// By the variables that MPIs' launchers set for each rank.
inline bool started_by_mpi() {
  for (const char* name : {"PMI_RANK", "PMI_FD", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

// Before ranks know each other: whether this one is rank 0, as far as its environment says.
inline bool speaks_first() {
  for (const char* name : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "RANK"}) {
    if (const char* rank = std::getenv(name)) return std::string_view(rank) == "0";
  }
  return true;
}

// Of a process that its MPI says has no others: which variable says that there should be, since another MPI's
// mpiexec has started it, and the way out; "" where none does. `own`: the MPI that the program was built for,
// where it is known.
inline std::string other_launcher(const std::string& own = "") {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"}) {
    const char* text = std::getenv(name);
    const int wanted = text != nullptr ? std::atoi(text) : 0;
    if (wanted > 1)
      return fmt::format(
          "this mpiexec belongs to another MPI than the program was built for{}: it started {} processes "
          "({}), each of which is alone; start it with that MPI's own (on Debian mpiexec.mpich or "
          "mpiexec.openmpi) -n {}",
          own.empty() ? "" : " (" + own + ")", wanted, name, wanted);
  }
  return "";
}

}  // namespace heddle
