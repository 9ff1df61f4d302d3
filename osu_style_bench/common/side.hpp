// What is measured: one library's collectives and messages, behind one narrow interface.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "common/job.hpp"
#include "common/options.hpp"

namespace heddle::bench {

// Counts are in elements of the datatype that the side was made for. A call that fails ends the job: a
// benchmark that goes on would report nonsense. One thread at a time.
class Side {
 public:
  virtual ~Side() = default;
  virtual const char* name() const = 0;

  virtual void allreduce(const void* send, void* receive, std::size_t count) = 0;  // sum
  // Of each rank `count` elements, which `receive` has in the order of ranks.
  virtual void allgather(const void* send, void* receive, std::size_t count) = 0;
  // As `send` of allreduce or allgather: what is sent lies where the sum, or its part of the result, goes.
  // Null where the side has no such thing.
  virtual const void* in_place() const { return nullptr; }
  // Sum. `receive` is not looked at but on the root, and may be null elsewhere.
  virtual void reduce(const void* send, void* receive, std::size_t count, int root) = 0;
  virtual void bcast(void* buffer, std::size_t count, int root) = 0;
  virtual void barrier() = 0;
  // Non-blocking: at most one is open at a time; `finish` waits for it, `test` moves it and says whether it
  // is complete.
  virtual void start_allreduce(const void* send, void* receive, std::size_t count) = 0;
  virtual void start_bcast(void* buffer, std::size_t count, int root) = 0;
  virtual bool test() = 0;
  virtual void finish() = 0;
  virtual void send(const void* data, std::size_t count, int peer) = 0;
  virtual void receive(void* data, std::size_t count, int peer) = 0;
  // Sends all of `out` and receives all of `in`, at once as far as the library can. Either may be empty.
  virtual void exchange(std::span<void* const> out, std::span<void* const> in, std::size_t count,
                        int peer) = 0;

  // Memory for buffers of the kind this side likes best, null where there is none; it goes with the side.
  virtual void* allocate(std::size_t /*bytes*/) { return nullptr; }

  // The algorithm that serves `kind` with `count` elements of host memory, "-" where nobody says.
  virtual std::string algorithm(Kind kind, std::size_t count) = 0;
};

// MPI's functions as any program calls them: a preload library may serve them.
std::unique_ptr<Side> make_mpi_side(Dtype dtype);
// The host MPI's own functions (PMPI_*), which no preload library serves.
std::unique_ptr<Side> make_host_side(Dtype dtype);
// heddle's own API. Collective; null on failure, with the sentence in `problem`.
std::unique_ptr<Side> make_native_side(const Job& job, Dtype dtype, std::string& problem);

class Device;
// Copies to the host, `inner`'s blocking collectives there, and copies back.
std::unique_ptr<Side> make_staged_side(const Job& job, const Options& options, Device& device,
                                       std::unique_ptr<Side> inner);

// Whether the host MPI says that it takes GPU memory.
bool host_takes_gpu_memory();

// The version of the preload library in this process; null if there is none.
const char* preload_version();

}  // namespace heddle::bench
