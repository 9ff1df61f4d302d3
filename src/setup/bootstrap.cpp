#include "setup/bootstrap.hpp"

#include <arpa/inet.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

namespace heddle {
namespace {

constexpr std::chrono::milliseconds kDefaultDeadline{60'000};

std::optional<std::string> look_up(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string& entry : environment) {
    if (entry.size() > name.size() && entry[name.size()] == '=' && entry.compare(0, name.size(), name) == 0) {
      return entry.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

Status unset(const char* name) {
  return Status(Code::invalid_argument,
                std::string(name) +
                    " is not set; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say how to "
                    "start (torchrun sets them)");
}

// The whole value must be a decimal number in [least, most].
Result<int> number(const std::vector<std::string>& environment, const char* name, int least, int most,
                   const std::string& meaning) {
  const std::optional<std::string> text = look_up(environment, name);
  if (!text || text->empty()) return unset(name);
  int value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end || value < least || value > most) {
    return Status(Code::invalid_argument, std::string(name) + "=\"" + text->substr(0, 80) + "\" is not " +
                                              meaning + " (" + std::to_string(least) + " to " +
                                              std::to_string(most) + ")");
  }
  return value;
}

// Launchers write IPv6 addresses in brackets, as in front of a port; the system's functions want them
// without.
Result<std::string> without_brackets(const std::string& address) {
  if (address.find_first_of("[]") == std::string::npos) return address;
  if (address.front() == '[' && address.back() == ']') {
    std::string inside = address.substr(1, address.size() - 2);
    in6_addr parsed;
    // A link-local address may name its interface (fe80::1%eth0).
    if (::inet_pton(AF_INET6, inside.substr(0, inside.find('%')).c_str(), &parsed) == 1) return inside;
  }
  return Status(Code::invalid_argument, "MASTER_ADDR=\"" + address.substr(0, 80) +
                                            "\" has brackets that are not around an IPv6 address; write "
                                            "[::1], or an address or name alone, and the port in "
                                            "MASTER_PORT");
}

// What a launcher calls the job, the nearest to the ranks first. torchrun says "none" where it was given no
// name. Not a step of Slurm's: one job may be started by several.
std::string job_of(const std::vector<std::string>& environment) {
  for (const char* name : {"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"}) {
    const std::optional<std::string> value = look_up(environment, name);
    if (value && !value->empty() && *value != "none") return std::string(name) + "=" + value->substr(0, 80);
  }
  return "";
}

}  // namespace

Result<Rendezvous> rendezvous_from(const std::vector<std::string>& environment, int master_port) {
  Rendezvous where;
  Result<int> size = number(environment, "WORLD_SIZE", 1, kMostRanks, "a number of ranks");
  if (!size.ok()) return size.status();
  where.size = size.value();
  Result<int> rank = number(environment, "RANK", 0, where.size - 1, "a rank of this job");
  if (!rank.ok()) return rank.status();
  where.rank = rank.value();
  if (where.size == 1) return where;
  const std::optional<std::string> address = look_up(environment, "MASTER_ADDR");
  if (!address || address->empty()) return unset("MASTER_ADDR");
  Result<std::string> bare = without_brackets(*address);
  if (!bare.ok()) return bare.status();
  where.address = std::move(bare).value();
  where.port = master_port;
  if (where.port == 0) {
    Result<int> port = number(environment, "MASTER_PORT", 1, 65535, "a port");
    if (!port.ok()) return port.status();
    where.port = port.value();
  }
  where.job = job_of(environment);
  return where;
}

Result<Bootstrap> bootstrap_over_tcp(const Rendezvous& where, StartWait wait) {
  Bootstrap bootstrap;
  bootstrap.rank = where.rank;
  bootstrap.size = where.size;
  if (where.size == 1) {
    bootstrap.allgather = [](const void* mine, void* all, std::size_t bytes) {
      if (bytes != 0) std::memmove(all, mine, bytes);
      return Status();
    };
    return bootstrap;
  }
  if (wait.timeout <= std::chrono::milliseconds::zero()) wait.timeout = kDefaultDeadline;
  Result<std::unique_ptr<TcpStar>> star = TcpStar::connect(where, wait);
  if (!star.ok()) return star.status();
  bootstrap.allgather = [shared = std::shared_ptr<TcpStar>(std::move(star).value())](
                            const void* mine, void* all, std::size_t bytes) {
    return shared->allgather(mine, all, bytes);
  };
  return bootstrap;
}

Result<Bootstrap> bootstrap_from_env(const Config& config) {
  std::vector<std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    environment.emplace_back(*entry);
  Result<Rendezvous> where = rendezvous_from(environment, config.master_port);
  if (!where.ok()) return where.status();
  if (!config.job_id.empty()) where->job = "HEDDLE_JOB_ID=" + config.job_id;
  return bootstrap_over_tcp(where.value(), {config.timeout, config.warn_after, config.log_level});
}

}  // namespace heddle
