// The algorithms on real data: the engine runs every schedule of the catalog over loopback messages and
// shared-memory teams. All ranks live in one thread and are polled in turn, so a failure repeats.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "cases.hpp"
#include "engine/engine.hpp"
#include "engine/kernels/kernels.hpp"
#include "schedule/builder.hpp"
#include "support/topology_teams.hpp"
#include "transports/loopback/loopback.hpp"

namespace heddle::test {
namespace {

// x -> scale * x + offset modulo 2^32. Their composition is associative and not commutative.
struct Affine {
  std::uint32_t scale;
  std::uint32_t offset;
  friend bool operator==(const Affine&, const Affine&) = default;
};
Affine compose(Affine a, Affine b) {
  return {a.scale * b.scale, a.scale * b.offset + a.offset};
}
Affine sum(Affine a, Affine b) {
  return {a.scale + b.scale, a.offset + b.offset};
}

template <Affine (*kOp)(Affine, Affine)>
void fold(void* out, void* out2, const void* const* inputs, unsigned n_inputs, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    Affine value{};
    for (unsigned k = 0; k < n_inputs; ++k) {
      Affine operand;
      std::memcpy(&operand, static_cast<const std::byte*>(inputs[k]) + i * sizeof operand, sizeof operand);
      value = k == 0 ? operand : kOp(value, operand);
    }
    for (void* target : {out, out2}) {
      if (target != nullptr)
        std::memcpy(static_cast<std::byte*>(target) + i * sizeof value, &value, sizeof value);
    }
  }
}

Affine input_of(std::int32_t rank, std::size_t i) {
  return {2 * static_cast<std::uint32_t>(rank) + 3,
          static_cast<std::uint32_t>(i) * 7919 + static_cast<std::uint32_t>(rank)};
}

std::vector<Affine> inputs_of(std::int32_t rank, std::size_t count) {
  std::vector<Affine> input(count);
  for (std::size_t i = 0; i < count; ++i)
    input[i] = input_of(rank, i);
  return input;
}

// The ranks of a machine with their connections.
class World {
 public:
  explicit World(const TopologyView& topology)
      : topology_(topology),
        hub_(topology.size(), LoopbackOptions{.eager_bytes = 64, .max_delay = 3}),
        scratch_(static_cast<std::size_t>(topology.size())) {
    for (std::int32_t rank = 0; rank < topology.size(); ++rank) {
      transports_.push_back(hub_.transport(rank));
      ports_.push_back(
          {std::vector<Transport*>(static_cast<std::size_t>(topology.size()), transports_.back().get()),
           {transports_.back().get()},
           {}});
    }
    teams_.connect(topology, ports_);
  }

  // Every rank's vector after the collective.
  std::vector<std::vector<Affine>> run(const Algorithm& algorithm, const Shape& shape, std::size_t count,
                                       FoldFn fn, bool in_place) {
    std::vector<std::vector<Affine>> inputs;
    std::vector<std::vector<Affine>> results;
    std::vector<std::unique_ptr<Execution>> running;
    ++sequence_;
    // Only the root of a reduce has somewhere to put a result.
    const auto has_result = [&](std::int32_t rank) {
      return algorithm.collective != Collective::reduce || rank == shape.root;
    };
    const auto is_in_place = [&](std::int32_t rank) { return in_place && has_result(rank); };
    for (std::int32_t rank = 0; rank < topology_.size(); ++rank) {
      inputs.push_back(inputs_of(rank, count));
      const bool has_data =
          is_in_place(rank) || (algorithm.collective == Collective::bcast && rank == shape.root);
      results.push_back(has_data ? inputs.back() : std::vector<Affine>(count));
      if (algorithm.collective == Collective::allgather) place_own(rank, inputs.back(), results.back());
    }
    for (std::size_t r = 0; r < inputs.size(); ++r) {
      const auto rank = static_cast<std::int32_t>(r);
      running.push_back(std::make_unique<Execution>(
          std::make_shared<const Schedule>(algorithm.build(topology_, rank, shape)), ports_[r],
          &scratch_[r]));
      auto* data = has_result(rank) ? reinterpret_cast<std::byte*>(results[r].data()) : nullptr;
      const auto* input = is_in_place(rank) ? data : reinterpret_cast<const std::byte*>(inputs[r].data());
      const Status status = running.back()->start({input, data, count, sizeof(Affine), fn, sequence_});
      EXPECT_TRUE(status.ok()) << status.message();
    }
    // Generous: a schedule that gets stuck fails here instead of hanging.
    constexpr int kMostRounds = 2'000'000;
    std::size_t left = running.size();
    for (int round = 0; left > 0 && round < kMostRounds; ++round) {
      for (auto& execution : running) {
        bool done = false;
        if (!execution->active()) continue;
        const Status status = execution->poll(&done);
        EXPECT_TRUE(status.ok()) << status.message();
        if (!status.ok()) return {};
        if (done) --left;
      }
    }
    EXPECT_EQ(left, 0U) << "ranks that never finish";
    for (std::size_t r = 0; r < inputs.size() && !in_place; ++r)
      EXPECT_TRUE(inputs[r] == inputs_of(static_cast<std::int32_t>(r), count))
          << "the caller's input was changed";
    return results;
  }

 private:
  void place_own(std::int32_t rank, const std::vector<Affine>& input, std::vector<Affine>& result) const {
    const std::size_t each = result.size() / static_cast<std::size_t>(topology_.size());
    const auto first = static_cast<std::ptrdiff_t>(each) * rank;
    result.assign(result.size(), Affine{});
    std::copy_n(input.begin() + first, each, result.begin() + first);
  }

  const TopologyView& topology_;
  LoopbackHub hub_;
  std::vector<std::unique_ptr<Transport>> transports_;
  TopologyTeams teams_;
  std::vector<Ports> ports_;
  std::vector<ScratchMemory> scratch_;  // by rank, of all runs
  std::uint32_t sequence_ = 0;
};

std::vector<Affine> expected(const Algorithm& algorithm, std::int32_t size, std::int32_t root,
                             std::size_t count, bool in_order) {
  if (algorithm.collective == Collective::bcast) return inputs_of(root, count);
  if (algorithm.collective == Collective::allgather) {
    std::vector<Affine> values;
    const std::size_t each = count / static_cast<std::size_t>(size);
    for (std::size_t i = 0; i < count; ++i)
      values.push_back(input_of(static_cast<std::int32_t>(i / each), i));
    return values;
  }
  std::vector<Affine> values = inputs_of(0, count);
  for (std::int32_t rank = 1; rank < size; ++rank) {
    for (std::size_t i = 0; i < count; ++i)
      values[i] = in_order ? compose(values[i], input_of(rank, i)) : sum(values[i], input_of(rank, i));
  }
  return values;
}

class OnRealData : public testing::TestWithParam<Algorithm> {};

TEST_P(OnRealData, EveryRankHasTheResult) {
  for (const std::int32_t size : {1, 2, 3, 4, 5, 7, 8, 12, 17}) {
    for (const TopologyView& topology : topologies_of(GetParam(), size)) {
      World world(topology);
      for (const Shape& shape : shapes_of(GetParam(), size, {2, 3}, {1, 2, 3, 5})) {
        const bool in_order = GetParam().build(topology, 0, shape).in_order;
        for (std::size_t count : {0, 1, 2, 13, 700}) {
          if (GetParam().collective == Collective::allgather) count *= static_cast<std::size_t>(size);
          const std::vector<Affine> wanted = expected(GetParam(), size, shape.root, count, in_order);
          for (const bool in_place : {true, false}) {
            // Which reads no input.
            if (in_place && GetParam().collective == Collective::allgather) continue;
            const auto results =
                world.run(GetParam(), shape, count, in_order ? fold<compose> : fold<sum>, in_place);
            ASSERT_FALSE(HasFailure()) << "size " << size << " chunks " << shape.chunks << " count " << count;
            for (std::size_t r = 0; r < results.size(); ++r) {
              if (GetParam().collective == Collective::reduce && std::cmp_not_equal(r, shape.root)) continue;
              const auto at = std::ranges::mismatch(results[r], wanted).in1 - results[r].begin();
              ASSERT_EQ(at, std::ssize(results[r]))
                  << "is the first wrong element; size " << size << " nodes " << topology.nodes() << " root "
                  << shape.root << " radix " << shape.radix << " chunks " << shape.chunks << " count "
                  << count << " rank " << r << (in_place ? " in place" : "");
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Catalog, OnRealData, testing::ValuesIn(algorithms()),
                         [](const auto& param) { return case_name(param.param); });

// A network that is done with what it is given before it has sent it, as long as nobody calls progress().
class LateTransport final : public Transport {
 public:
  const TransportCapabilities& capabilities() const override { return capabilities_; }
  Status send(int, std::uint32_t, const void*, std::size_t bytes, Ticket& ticket) override {
    left_ = bytes;
    ticket.done = true;
    return {};
  }
  Status recv(int, std::uint32_t, void*, std::size_t, Ticket&) override { return {}; }
  Status progress() override {
    left_ = 0;
    return {};
  }
  std::size_t unsettled_bytes() const override { return left_; }
  bool settled() override { return left_ == 0; }
  void cancel(Ticket&) override {}
  bool peer_is_gone(int) const override { return false; }
  int wake_descriptor() const override { return -1; }

 private:
  TransportCapabilities capabilities_;
  std::size_t left_ = 0;
};

// A node whose other member waits for a rank of another node, which waits for the end of what this one has
// sent.
class WaitingTeam final : public Team {
 public:
  explicit WaitingTeam(const Transport& network) : network_(network) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void start(TeamOp&) override {}
  bool poll(TeamOp&) override { return network_.unsettled_bytes() == 0; }
  int missing(const TeamOp&) const override { return 1; }
  std::uint64_t passed(const TeamOp&) const override { return 0; }
  TeamClash clash(const TeamOp&) const override { return {}; }
  void withdraw() override {}
  int withdrawn() const override { return -1; }
  void tell(std::uint64_t) override {}
  std::uint64_t told(int) const override { return 0; }

 private:
  const Transport& network_;
};

// A leader that waits for its node while others wait for its message.
TEST(Execution, WhatWasSentGoesOnWhileTheNodeIsWaitedFor) {
  Builder b(Collective::allreduce, 1);
  b.copy_input({0, 1}).send(1, {0, 1}).wait().team(StepKind::team_bcast, Slot::data, 1, {0, 1});
  LateTransport network;
  WaitingTeam team(network);
  Ports ports{{nullptr, &network}, {&network}, {}};
  ports.teams[static_cast<std::size_t>(TeamKind::node)] = &team;
  Execution run(std::make_shared<const Schedule>(std::move(b).finish()), ports);
  float value = 1;
  auto* const data = reinterpret_cast<std::byte*>(&value);
  ASSERT_TRUE(run.start({data, data, 1, sizeof value, fold_kernel(DType::f32, Op::sum), 0}).ok());
  bool done = false;
  for (int i = 0; i < 3 && !done; ++i)
    ASSERT_TRUE(run.poll(&done).ok());
  EXPECT_TRUE(done);
}

// A network that has taken a message over when it finds out that it cannot send it.
class FailingTransport final : public Transport {
 public:
  const TransportCapabilities& capabilities() const override { return capabilities_; }
  Status send(int, std::uint32_t, const void*, std::size_t, Ticket& ticket) override {
    held = &ticket;
    return Status(Code::system, "cannot be sent");
  }
  Status recv(int, std::uint32_t, void*, std::size_t, Ticket&) override { return {}; }
  Status progress() override { return {}; }
  void cancel(Ticket& ticket) override {
    if (held == &ticket) held = nullptr;
  }
  bool peer_is_gone(int) const override { return false; }
  int wake_descriptor() const override { return -1; }

  Ticket* held = nullptr;

 private:
  TransportCapabilities capabilities_;
};

// The caller's buffer is the caller's again.
TEST(Execution, AMessageThatCannotBeOpenedIsTakenBack) {
  Builder b(Collective::allreduce, 1);
  b.copy_input({0, 1}).send(1, {0, 1}).wait();
  FailingTransport network;
  const Ports ports{{nullptr, &network}, {&network}, {}};
  Execution run(std::make_shared<const Schedule>(std::move(b).finish()), ports);
  float value = 1;
  auto* const data = reinterpret_cast<std::byte*>(&value);
  ASSERT_TRUE(run.start({data, data, 1, sizeof value, fold_kernel(DType::f32, Op::sum), 0}).ok());
  bool done = false;
  EXPECT_EQ(run.poll(&done).code(), Code::system);
  EXPECT_NE(network.held, nullptr);
  run.abandon();
  EXPECT_EQ(network.held, nullptr);
}

}  // namespace
}  // namespace heddle::test
