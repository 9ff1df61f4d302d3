// Where ranks run: on which host, and on which of its cores they may.
#pragma once

#include <string>
#include <vector>

#include "common/job.hpp"

namespace heddle::bench {

struct RankPlace {
  std::string host;
  std::string core_list;  // "0-3,8"
};

// Of all ranks, on all ranks. Collective.
std::vector<RankPlace> places_of(const Job& job);

// On how many hosts they are, by their names.
int count_hosts(const std::vector<RankPlace>& places);

// "0-3,8" as numbers; of what is none of these nothing.
std::vector<int> cores_in(const std::string& core_list);

// Which ranks lack a core of their own, in a sentence; empty where each host has one for each of its ranks.
std::string lack_of_cores(const std::vector<RankPlace>& places);

// How often ranks were interrupted in favour of something else on their cores.
struct Interruptions {
  long most = 0;  // of all ranks
  double per_second = 0;
  // In a sentence, where that is often enough to be seen in the times; else empty.
  std::string complaint() const;
};

// Whether ranks have cores to themselves while they measure.
class CoreWatch {
 public:
  // Collective. Interruptions count from here on.
  explicit CoreWatch(const Job& job);
  // Collective, once all is measured: on standard error, in a line, whatever kept ranks from having cores to
  // themselves.
  void end(const Job& job, const char* program);

  const std::vector<RankPlace>& places() const { return places_; }
  std::string lack() const { return lack_of_cores(places_); }
  const Interruptions& interruptions() const { return interruptions_; }  // until end()

 private:
  std::vector<RankPlace> places_;
  long before_;
  double since_;
  Interruptions interruptions_;
};

}  // namespace heddle::bench
