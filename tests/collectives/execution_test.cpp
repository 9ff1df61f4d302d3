// The algorithms on real data: the engine runs every schedule of the catalog over loopback messages and
// shared-memory teams. All ranks live in one thread and are polled in turn, so a failure repeats.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "cases.hpp"
#include "engine/engine.hpp"
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

// The ranks of a machine with their connections.
class World {
 public:
  explicit World(const TopologyView& topology)
      : topology_(topology), hub_(topology.size(), LoopbackOptions{.eager_bytes = 64, .max_delay = 3}) {
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
    for (std::int32_t rank = 0; rank < topology_.size(); ++rank) {
      inputs.emplace_back();
      for (std::size_t i = 0; i < count; ++i)
        inputs.back().push_back(input_of(rank, i));
      const bool has_data = in_place || (algorithm.collective == Collective::bcast && rank == shape.root);
      results.push_back(has_data ? inputs.back() : std::vector<Affine>(count));
    }
    for (std::size_t r = 0; r < inputs.size(); ++r) {
      const auto rank = static_cast<std::int32_t>(r);
      running.push_back(std::make_unique<Execution>(
          std::make_shared<const Schedule>(algorithm.build(topology_, rank, shape)), ports_[r]));
      auto* data = reinterpret_cast<std::byte*>(results[r].data());
      const auto* input = in_place ? data : reinterpret_cast<const std::byte*>(inputs[r].data());
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
    for (std::size_t r = 0; r < inputs.size() && !in_place; ++r) {
      for (std::size_t i = 0; i < count; ++i)
        EXPECT_EQ(inputs[r][i], input_of(static_cast<std::int32_t>(r), i))
            << "the caller's input was changed";
    }
    return results;
  }

 private:
  const TopologyView& topology_;
  LoopbackHub hub_;
  std::vector<std::unique_ptr<Transport>> transports_;
  TopologyTeams teams_;
  std::vector<Ports> ports_;
  std::uint32_t sequence_ = 0;
};

Affine expected(const Algorithm& algorithm, std::int32_t size, std::int32_t root, std::size_t i,
                bool in_order) {
  if (algorithm.collective == Collective::bcast) return input_of(root, i);
  Affine value = input_of(0, i);
  for (std::int32_t rank = 1; rank < size; ++rank)
    value = in_order ? compose(value, input_of(rank, i)) : sum(value, input_of(rank, i));
  return value;
}

class OnRealData : public testing::TestWithParam<Algorithm> {};

TEST_P(OnRealData, EveryRankHasTheResult) {
  for (const std::int32_t size : {1, 2, 3, 4, 5, 7, 8, 12, 17}) {
    for (const TopologyView& topology : topologies_of(GetParam(), size)) {
      World world(topology);
      for (const Shape& shape : shapes_of(GetParam(), size, {2, 3}, {1, 2, 3, 5})) {
        const bool in_order = GetParam().build(topology, 0, shape).in_order;
        for (const std::size_t count : {0, 1, 2, 13, 700}) {
          for (const bool in_place : {true, false}) {
            const auto results =
                world.run(GetParam(), shape, count, in_order ? fold<compose> : fold<sum>, in_place);
            ASSERT_FALSE(HasFailure()) << "size " << size << " chunks " << shape.chunks << " count " << count;
            for (std::size_t i = 0; i < count; ++i) {
              const Affine wanted = expected(GetParam(), size, shape.root, i, in_order);
              for (std::size_t r = 0; r < results.size(); ++r) {
                ASSERT_EQ(results[r][i], wanted)
                    << "size " << size << " nodes " << topology.nodes() << " root " << shape.root << " radix "
                    << shape.radix << " chunks " << shape.chunks << " count " << count << " rank " << r
                    << " element " << i << (in_place ? " in place" : "");
              }
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Catalog, OnRealData, testing::ValuesIn(algorithms()),
                         [](const auto& param) { return case_name(param.param); });

}  // namespace
}  // namespace heddle::test
