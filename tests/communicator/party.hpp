// Ranks that meet in this process: what a Bootstrap needs, per rank, with nodes and lent messages as the test
// wants.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "support/loopback_p2p.hpp"
#include "support/ranks.hpp"

namespace heddle::test {

using Nodes = std::vector<std::uint64_t>;  // of each rank, the number of its node

class Party {
 public:
  // `nodes[rank]` says where a rank is.
  explicit Party(std::vector<std::uint64_t> nodes, LoopbackOptions options = {})
      : nodes_(std::move(nodes)), allgather_(size()), hub_(size(), options) {
    for (int r = 0; r < size(); ++r)
      lenders_.push_back(std::make_unique<LoopbackP2p>(hub_, r));
    lends_.assign(nodes_.size(), true);
  }

  int size() const { return static_cast<int>(nodes_.size()); }
  // What each rank's communicators share; empty: nothing.
  std::vector<std::shared_ptr<ProcessState>> processes;

  LoopbackP2p& lender(int rank) { return *lenders_[static_cast<std::size_t>(rank)]; }
  void lend_nothing(int rank) { lends_[static_cast<std::size_t>(rank)] = false; }

  Bootstrap bootstrap(int rank) {
    Bootstrap b;
    b.rank = rank;
    b.size = size();
    b.allgather = allgather_.of(rank);
    b.node = nodes_[static_cast<std::size_t>(rank)];
    b.clock = clock;
    if (!processes.empty()) b.process = processes[static_cast<std::size_t>(rank)];
    if (lends_[static_cast<std::size_t>(rank)]) {
      b.make_p2p = [this, rank]() -> Result<heddle_p2p> {
        if (rank == refusing) return Status(Code::out_of_memory, "no more of them");
        return lender(rank).functions();
      };
    }
    return b;
  }

  // Makes the communicator on every rank and runs `body(Rank&, Communicator&)`; all must succeed.
  template <typename Body>
  void run(const Config& config, Body body) {
    run_ranks(size(), [&](Rank& me) {
      me.at("create");
      Result<std::unique_ptr<Communicator>> comm = Communicator::create(bootstrap(me.rank), config);
      ASSERT_TRUE(comm.ok()) << comm.status().message();
      body(me, *comm.value());
    });
  }

  // What create says on every rank.
  std::vector<Status> outcomes(const std::function<Config(int rank)>& config_of) {
    std::vector<Status> all(nodes_.size());
    run_ranks(size(), [&](Rank& me) {
      all[static_cast<std::size_t>(me.rank)] =
          Communicator::create(bootstrap(me.rank), config_of(me.rank)).status();
    });
    return all;
  }

  // All lent messages go over it, and all ranks' clocks are its.
  void share(Wire& wire) {
    for (const auto& lender : lenders_)
      lender->wire = &wire;
    clock = wire.clock();
  }

  int refusing = -1;  // the rank whose lender fails
  Clock clock;        // of all ranks; null: the steady one

 private:
  std::vector<std::uint64_t> nodes_;
  ThreadAllgather allgather_;
  LoopbackHub hub_;
  std::vector<std::unique_ptr<LoopbackP2p>> lenders_;
  std::vector<bool> lends_;
};

inline Config quiet() {
  Config config;
  config.log_level = LogLevel::none;
  config.measure = false;
  return config;
}

// The same for ranks that wait in vain.
inline Config hurried() {
  Config config = quiet();
  config.timeout = std::chrono::milliseconds(400);
  return config;
}

// An allreduce of `count` integers whose result any rank can tell; `tag` makes it differ from others.
inline std::int64_t term(int rank, std::size_t i, std::uint64_t tag) {
  return static_cast<std::int64_t>((static_cast<std::uint64_t>(rank) + 1) * 1000003 + i * 7919 + tag * 31);
}
inline std::vector<std::int64_t> terms(int rank, std::size_t count, std::uint64_t tag) {
  std::vector<std::int64_t> out(count);
  for (std::size_t i = 0; i < count; ++i)
    out[i] = term(rank, i, tag);
  return out;
}
// Of all ranks, one after the other.
inline std::vector<std::int64_t> terms_of_all(int ranks, std::size_t count, std::uint64_t tag) {
  std::vector<std::int64_t> out;
  for (int r = 0; r < ranks; ++r) {
    const std::vector<std::int64_t> of_rank = terms(r, count, tag);
    out.insert(out.end(), of_rank.begin(), of_rank.end());
  }
  return out;
}
inline std::vector<std::int64_t> sums(int ranks, std::size_t count, std::uint64_t tag) {
  std::vector<std::int64_t> out(count);
  for (int r = 0; r < ranks; ++r) {
    for (std::size_t i = 0; i < count; ++i)
      out[i] += term(r, i, tag);
  }
  return out;
}

}  // namespace heddle::test
