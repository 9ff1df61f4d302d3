// Ranks that another MPI's mpiexec has started find themselves alone: what to tell whoever waits for a result.
#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <string>

namespace heddle::tools {

// Of a process that its MPI says has no others: which variable says that there should be, and the way out; "" where none does. `own`: the MPI that the program was built for, where it is known.
inline std::string other_launcher(const std::string& own = "") {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"}) {
    const char* text = std::getenv(name);
    const int wanted = text != nullptr ? std::atoi(text) : 0;
    if (wanted > 1)
      return fmt::format(
          "this mpiexec belongs to another MPI than the program was built for{}: it started {} processes "
          "({}), each of "
          "which is alone; start it with mpiexec.mpich -n {}",
          own.empty() ? "" : " (" + own + ")", wanted, name, wanted);
  }
  return "";
}

}  // namespace heddle::tools
