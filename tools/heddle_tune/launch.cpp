#include "heddle_tune/launch.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace heddle::tune {
namespace {

class EnvironmentLaunch final : public Launch {
 public:
  explicit EnvironmentLaunch(Bootstrap bootstrap) { bootstrap_ = std::move(bootstrap); }
  // The others find out by waiting for this one.
  [[noreturn]] void abort() override { std::_Exit(1); }
};

}  // namespace

Launcher find_launcher() {
  for (const char* name : {"PMI_RANK", "PMI_FD", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID"}) {
    if (std::getenv(name) != nullptr) return Launcher::mpi;
  }
  const bool ranks = std::getenv("RANK") != nullptr || std::getenv("WORLD_SIZE") != nullptr;
  return ranks ? Launcher::environment : Launcher::none;
}

bool speaks_first() {
  for (const char* name : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "RANK"}) {
    if (const char* rank = std::getenv(name)) return std::string_view(rank) == "0";
  }
  return true;
}

std::string other_launcher(Launcher launcher, int size) {
  if (launcher != Launcher::mpi || size != 1) return "";
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"}) {
    const char* text = std::getenv(name);
    const int wanted = text != nullptr ? std::atoi(text) : 0;
    if (wanted > 1)
      return fmt::format(
          "this mpiexec belongs to another MPI than heddle-tune was built for: it started {} processes ({}), "
          "each of which is "
          "alone; start it with mpiexec.mpich -n {}",
          wanted, name, wanted);
  }
  return "";
}

Result<std::unique_ptr<Launch>> start(Launcher launcher, const Config& config) {
  if (launcher == Launcher::mpi) return start_mpi();
  Result<Bootstrap> bootstrap = bootstrap_from_env(config.timeout, config.master_port);
  if (!bootstrap.ok()) return bootstrap.status();
  return std::unique_ptr<Launch>(std::make_unique<EnvironmentLaunch>(std::move(bootstrap).value()));
}

}  // namespace heddle::tune
