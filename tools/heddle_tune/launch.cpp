#include "heddle_tune/launch.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "base/launchers.hpp"

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
  if (started_by_mpi()) return Launcher::mpi;
  const bool ranks = std::getenv("RANK") != nullptr || std::getenv("WORLD_SIZE") != nullptr;
  return ranks ? Launcher::environment : Launcher::none;
}

std::string other_launcher(Launcher launcher, int size) {
  return launcher == Launcher::mpi && size == 1 ? heddle::other_launcher() : "";
}

Result<std::unique_ptr<Launch>> start(Launcher launcher, const Config& config) {
  if (launcher == Launcher::mpi) return start_mpi();
  Result<Bootstrap> bootstrap = bootstrap_from_env(config);
  if (!bootstrap.ok()) return bootstrap.status();
  return std::unique_ptr<Launch>(std::make_unique<EnvironmentLaunch>(std::move(bootstrap).value()));
}

}  // namespace heddle::tune
