#include "common/job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <set>
#include <vector>

#include "common/machine.hpp"
#include "heddle/heddle_mpi.h"
#include "interpose/backend/finalize_together.hpp"
#include "tools/launchers.hpp"

namespace heddle::bench {
namespace {

std::string sentence(const char* what, heddle_status status) {
  return fmt::format("{}: {}: {}", what, heddle_status_name(status), heddle_last_error());
}

}  // namespace

std::unique_ptr<Job> Job::start(int* argc, char*** argv, bool native, bool threads, std::string& problem) {
  std::unique_ptr<Job> job(new Job);
  const bool from_environment = std::getenv("RANK") != nullptr && std::getenv("WORLD_SIZE") != nullptr;
  if (native && from_environment && !tools::started_by_mpi()) {
    job->control_ = job->make_native_comm(problem);
    if (job->control_ == nullptr) return nullptr;
    heddle_comm_rank(job->control_.get(), &job->rank_);
    heddle_comm_size(job->control_.get(), &job->size_);
    return job;
  }
  const int wanted = threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
  int provided = MPI_THREAD_SINGLE;
  if (MPI_Init_thread(argc, argv, wanted, &provided) != MPI_SUCCESS) {
    problem = "MPI_Init_thread failed";
    return nullptr;
  }
  job->has_mpi_ = true;
  if (provided < wanted) {
    problem = "this needs MPI_THREAD_MULTIPLE, which the host MPI does not provide";
    return nullptr;
  }
  PMPI_Comm_rank(MPI_COMM_WORLD, &job->rank_);
  PMPI_Comm_size(MPI_COMM_WORLD, &job->size_);
  return job;
}

Job::~Job() {
  control_.reset();
  if (!has_mpi_) return;
  leave_mpi_together();
  MPI_Finalize();
}

// Else MPICH up to 4.1 does not end over several hosts, in some runs or in most, whatever the program does.
void Job::leave_mpi_together() const {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  if (PMPI_Get_library_version(version, &length) != MPI_SUCCESS) return;
  const Status met = backend::finalize_together(version, [](bool mine) {
    const int here = mine ? 1 : 0;
    int all = 0;
    return PMPI_Allreduce(&here, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD) == MPI_SUCCESS && all != 0;
  });
  if (!met.ok()) fmt::print(stderr, "MPI_Finalize may hang: {}\n", met.message());
}

int Job::local_rank() const {
  int local = rank_;
  if (has_mpi_) {
    MPI_Comm machine = MPI_COMM_NULL;
    PMPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    PMPI_Comm_rank(machine, &local);
    PMPI_Comm_free(&machine);
  } else if (const char* text = std::getenv("LOCAL_RANK")) {
    local = std::max(std::atoi(text), 0);
  }
  return local;
}

std::string Job::other_launcher() const {
  return has_mpi_ && size_ == 1 ? tools::other_launcher(mpi_library()) : "";
}

void Job::reduce(std::span<double> values, bool largest) const {
  if (has_mpi_) {
    PMPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE,
                   largest ? MPI_MAX : MPI_SUM, MPI_COMM_WORLD);
    return;
  }
  const heddle_status status = heddle_allreduce(HEDDLE_IN_PLACE, values.data(), values.size(), HEDDLE_FLOAT64,
                                                largest ? HEDDLE_MAX : HEDDLE_SUM, control_.get());
  if (status != HEDDLE_OK) abort(sentence("heddle_allreduce", status));
}

void Job::maximum(std::span<double> values) const {
  reduce(values, true);
}
void Job::sum(std::span<double> values) const {
  reduce(values, false);
}

double Job::maximum(double value) const {
  reduce({&value, 1}, true);
  return value;
}

bool Job::all(bool good) const {
  return maximum(good ? 0.0 : 1.0) == 0.0;
}

void Job::barrier() const {
  if (has_mpi_) {
    PMPI_Barrier(MPI_COMM_WORLD);
    return;
  }
  const heddle_status status = heddle_barrier(control_.get());
  if (status != HEDDLE_OK) abort(sentence("heddle_barrier", status));
}

NativeComm Job::make_native_comm(std::string& problem) const {
  heddle_comm_t comm = nullptr;
  const heddle_status status =
      has_mpi_ ? heddle_comm_create_mpi(MPI_COMM_WORLD, &comm) : heddle_comm_create_env(&comm);
  if (status != HEDDLE_OK)
    problem = sentence(has_mpi_ ? "heddle_comm_create_mpi" : "heddle_comm_create_env", status);
  return NativeComm(comm);
}

int Job::run(const std::function<int()>& run) const {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    abort("memory ran out; measure less of it, or start fewer ranks");
  } catch (const std::exception& error) {
    abort(fmt::format("{}; this ends all ranks", error.what()));
  }
}

int Job::hosts() const {
  constexpr std::uint64_t kExact = (std::uint64_t{1} << 53) - 1;  // what a double holds
  std::vector<double> names(static_cast<std::size_t>(size_));
  names[static_cast<std::size_t>(rank_)] =
      static_cast<double>(std::hash<std::string>{}(this_machine().host) & kExact);
  sum(names);
  return static_cast<int>(std::set<double>(names.begin(), names.end()).size());
}

void Job::abort(const std::string& why) const {
  std::fprintf(stderr, "rank %d: %s\n", rank_, why.c_str());
  std::fflush(stderr);
  if (has_mpi_) PMPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

}  // namespace heddle::bench
