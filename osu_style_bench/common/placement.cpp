#include "common/placement.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <sstream>

#include "common/machine.hpp"
#include "common/pacing.hpp"

namespace heddle::bench {

std::vector<RankPlace> places_of(const Job& job) {
  const Machine mine = this_machine();
  const std::vector<std::string> hosts = job.gather(mine.host);
  const std::vector<std::string> cores = job.gather(mine.core_list);
  std::vector<RankPlace> places;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank)
    places.push_back({hosts[rank], cores[rank]});
  return places;
}

int count_hosts(const std::vector<RankPlace>& places) {
  std::set<std::string> names;
  for (const RankPlace& place : places)
    names.insert(place.host);
  return static_cast<int>(names.size());
}

std::vector<int> cores_in(const std::string& core_list) {
  std::vector<int> cores;
  std::istringstream text(core_list);
  for (std::string part; std::getline(text, part, ',');) {
    int first = 0;
    int last = 0;
    const int numbers = std::sscanf(part.c_str(), "%d-%d", &first, &last);
    if (numbers < 1) continue;
    for (int core = first; core <= (numbers == 2 ? last : first); ++core)
      cores.push_back(core);
  }
  return cores;
}

namespace {

// Gives ranks cores of their own, one after the other; those that have one move where they can (augmenting
// paths).
class Seats {
 public:
  explicit Seats(const std::vector<std::vector<int>>& allowed) : allowed_(allowed) {}
  bool seat(std::size_t rank) {
    seen_.clear();
    return move(rank);
  }

 private:
  bool move(std::size_t rank) {
    for (const int core : allowed_[rank]) {
      if (!seen_.insert(core).second) continue;
      const auto taken = by_core_.find(core);
      if (taken != by_core_.end() && !move(taken->second)) continue;
      by_core_[core] = rank;
      return true;
    }
    return false;
  }
  const std::vector<std::vector<int>>& allowed_;
  std::map<int, std::size_t> by_core_;
  std::set<int> seen_;
};

std::string lack_on(const std::string& host, const std::vector<std::vector<int>>& allowed) {
  std::set<int> usable;
  for (const std::vector<int>& cores : allowed)
    usable.insert(cores.begin(), cores.end());
  if (usable.empty()) return "";  // the system does not say
  if (allowed.size() > usable.size())
    return fmt::format("{} ranks on {} share {} core{}", allowed.size(), host, usable.size(),
                       usable.size() == 1 ? "" : "s");
  Seats seats(allowed);
  std::size_t seated = 0;
  for (std::size_t rank = 0; rank < allowed.size(); ++rank)
    seated += seats.seat(rank) ? 1U : 0U;
  if (seated == allowed.size()) return "";
  return fmt::format("the {} ranks on {} are bound so that {} of them have no core of their own",
                     allowed.size(), host, allowed.size() - seated);
}

long interruptions_so_far() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

}  // namespace

std::string lack_of_cores(const std::vector<RankPlace>& places) {
  std::map<std::string, std::vector<std::vector<int>>> hosts;
  for (const RankPlace& place : places)
    hosts[place.host].push_back(cores_in(place.core_list));
  for (const auto& [host, allowed] : hosts)
    if (const std::string lack = lack_on(host, allowed); !lack.empty()) return lack;
  return "";
}

std::string Interruptions::complaint() const {
  // Each costs some milliseconds of waiting: more than that and no block of 4 ms is likely to be free of
  // them.
  constexpr double kOften = 25;
  constexpr long kLeast = 10;  // of a short run
  if (most < kLeast || per_second < kOften) return "";
  return fmt::format(
      "a rank was interrupted {} times, {:.0f} times a second: something else runs on its core", most,
      per_second);
}

CoreWatch::CoreWatch(const Job& job)
    : places_(places_of(job)), before_(interruptions_so_far()), since_(now()) {}

void CoreWatch::end(const Job& job, const char* program) {
  const auto mine = static_cast<double>(interruptions_so_far() - before_);
  double most[2] = {mine, mine / std::max(now() - since_, 1e-3)};
  job.maximum(most);
  interruptions_ = {static_cast<long>(most[0]), most[1]};
  const std::string lacking = lack();
  const std::string why = lacking.empty() ? interruptions_.complaint() : lacking;
  if (!why.empty() && job.leads())
    std::fprintf(stderr, "%s: warning: %s; times are those of waiting for a core as well\n", program,
                 why.c_str());
}

}  // namespace heddle::bench
