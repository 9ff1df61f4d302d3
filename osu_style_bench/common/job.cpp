#include "common/job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <numeric>
#include <vector>

#include "base/launchers.hpp"
#include "common/host_mpi.hpp"

namespace heddle::bench {
namespace {

std::string sentence(const char* what, heddle_status status) {
  return fmt::format("{}: {}: {}", what, heddle_status_name(status), heddle_last_error());
}

}  // namespace

std::string how_two_start(const std::string& option) {
  return fmt::format("start it with {}RANK, WORLD_SIZE=2, MASTER_ADDR and MASTER_PORT{} (--help shows how)",
                     host::built_in() ? "mpiexec -n 2, or without MPI with " : "",
                     option.empty() ? "" : " and " + option);
}

std::unique_ptr<Job> Job::start(int* argc, char*** argv, bool native, bool threads, std::string& problem) {
  std::unique_ptr<Job> job(new Job);
  const bool from_environment = std::getenv("RANK") != nullptr && std::getenv("WORLD_SIZE") != nullptr;
  if (native && from_environment && !(host::built_in() && started_by_mpi())) {
    job->control_ = job->make_native_comm(problem);
    if (job->control_ == nullptr) return nullptr;
    heddle_comm_rank(job->control_.get(), &job->rank_);
    heddle_comm_size(job->control_.get(), &job->size_);
    return job;
  }
  if (!host::start(argc, argv, native, threads, problem)) return nullptr;
  job->has_mpi_ = true;
  job->rank_ = host::rank();
  job->size_ = host::size();
  return job;
}

Job::~Job() {
  control_.reset();
  if (has_mpi_) host::finish();
}

int Job::local_rank() const {
  int local = rank_;
  if (has_mpi_) {
    local = host::rank_on_machine();
  } else if (const char* text = std::getenv("LOCAL_RANK")) {
    local = std::max(std::atoi(text), 0);
  }
  return local;
}

std::string Job::other_launcher() const {
  return has_mpi_ && size_ == 1 ? heddle::other_launcher(host::library()) : "";
}

void Job::reduce(std::span<double> values, bool largest) const {
  if (has_mpi_) {
    host::reduce(values, largest);
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
    host::barrier();
    return;
  }
  const heddle_status status = heddle_barrier(control_.get());
  if (status != HEDDLE_OK) abort(sentence("heddle_barrier", status));
}

NativeComm Job::make_native_comm(std::string& problem) const {
  heddle_comm_t comm = nullptr;
  const heddle_status status = has_mpi_ ? host::make_comm(&comm) : heddle_comm_create_env(&comm);
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

std::vector<std::string> Job::gather(const std::string& text) const {
  const auto me = static_cast<std::size_t>(rank_);
  std::vector<double> lengths(static_cast<std::size_t>(size_));
  lengths[me] = static_cast<double>(text.size());
  sum(lengths);
  // Sums, which are all that ranks have of each other: every byte is a number that the others leave at 0.
  std::vector<double> bytes(static_cast<std::size_t>(std::accumulate(lengths.begin(), lengths.end(), 0.0)));
  const auto before =
      static_cast<std::size_t>(std::accumulate(lengths.begin(), lengths.begin() + rank_, 0.0));
  for (std::size_t i = 0; i < text.size(); ++i)
    bytes[before + i] = static_cast<unsigned char>(text[i]);
  if (!bytes.empty()) sum(bytes);
  std::vector<std::string> texts;
  std::size_t at = 0;
  for (const double length : lengths) {
    std::string& one = texts.emplace_back();
    for (const std::size_t end = at + static_cast<std::size_t>(length); at < end; ++at)
      one += static_cast<char>(static_cast<unsigned char>(bytes[at]));
  }
  return texts;
}

void Job::abort(const std::string& why) const {
  std::fprintf(stderr, "%s: rank %d: %s\n", program_invocation_short_name, rank_, why.c_str());
  std::fflush(stderr);
  if (has_mpi_) host::abort();
  std::_Exit(1);
}

}  // namespace heddle::bench
