// How the ranks of a run find each other: by MPI, or by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
#pragma once

#include <memory>
#include <string>

#include "base/config.hpp"
#include "base/status.hpp"
#include "setup/bootstrap.hpp"

namespace heddle::tune {

enum class Launcher : std::uint8_t { none, mpi, environment };

// By the variables that launchers set; MPI's count more, since they may be started by one another.
Launcher find_launcher();

// The sentence that says so where an MPI launcher started several processes and this one found itself alone
// (`size`): the launcher is another MPI's. Else empty.
std::string other_launcher(Launcher launcher, int size);

// As long as it lives the ranks can meet. Communicators go before it.
class Launch {
 public:
  Launch() = default;
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
  virtual ~Launch() = default;

  const Bootstrap& bootstrap() const { return bootstrap_; }
  // Ends this process, and the other ranks as far as there is a way: after a failure that they may not see.
  [[noreturn]] virtual void abort() = 0;

 protected:
  Bootstrap bootstrap_;
};

// Collective. `launcher` is not none.
Result<std::unique_ptr<Launch>> start(Launcher launcher, const Config& config);

// In builds without MPI, where it is another file, `unsupported`.
Result<std::unique_ptr<Launch>> start_mpi();

}  // namespace heddle::tune
