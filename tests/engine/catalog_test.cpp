// Every algorithm of the catalog, executed: all rank counts to 16, several topologies, shapes, counts,
// payloads, roots, with messages that are eager, rendezvous and delayed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/payload.hpp"
#include "select/catalog.hpp"
#include "support/ranks.hpp"
#include "support/schedule_world.hpp"

namespace heddle::test {
namespace {

using Bytes = std::vector<std::byte>;

std::vector<TopologyView> topologies(int ranks) {
  std::vector<TopologyView> out{TopologyView::flat(ranks), TopologyView::one_node(ranks)};
  if (ranks >= 4 && ranks % 2 == 0) out.push_back(TopologyView::uniform(2, ranks / 2));
  if (ranks >= 3) {
    // Uneven nodes, ranks dealt in turn: members of a node are not neighbours.
    std::vector<std::int32_t> node_of;
    for (int r = 0; r < ranks; ++r)
      node_of.push_back(r % 5 == 4 ? 0 : r % 3);
    out.push_back(TopologyView({node_of}));
    out.push_back(TopologyView::of_domains(node_of));
  }
  return out;
}

bool fits(const Algorithm& a, const TopologyView& t) {
  return !a.needs_team || a.needs_messages || t.nodes() == 1;
}

// The catalog's own suggestions for a small and a large vector, and odd ones.
std::vector<Shape> shapes_of(const Algorithm& a, const TopologyView& t) {
  std::vector<Shape> shapes = a.shapes(t, 100);
  const std::vector<Shape> large = a.shapes(t, 1 << 22);
  shapes.insert(shapes.end(), large.begin(), large.end());
  if (large.size() > 1) {
    shapes.push_back({0, 3, 1});
    shapes.push_back({0, 2, 3});
  }
  // Several leaders run in the tests of the collectives, on real data too.
  const auto same = [](const Shape& x, const Shape& y) { return x.radix == y.radix && x.chunks == y.chunks; };
  std::vector<Shape> distinct;
  for (const Shape& s : shapes) {
    if (std::none_of(distinct.begin(), distinct.end(), [&](const Shape& d) { return same(d, s); }))
      distinct.push_back(s);
  }
  return distinct;
}

// Does what it is given when it has been asked for it some times, and not before.
class LateWork final : public LocalWork {
 public:
  explicit LateWork(unsigned seed) : random_(seed) {}
  void fold_by(FoldFn what) { fold_ = what; }
  std::byte* scratch(std::size_t bytes) override {
    scratch_.assign(bytes, std::byte{0xdd});
    return scratch_.data();
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    give([=] { std::memmove(to, from, bytes); });
  }
  void fold(std::byte* to, const std::byte* first, const std::byte* second, std::size_t count) override {
    give([=, this] {
      const void* const inputs[] = {first, second};
      fold_(to, nullptr, inputs, 2, count);
    });
  }
  bool done() override {
    if (given_.empty()) return true;
    if (wait_-- > 0) return false;
    for (const std::function<void()>& each : given_)
      each();
    given_.clear();
    return true;
  }

 private:
  void give(std::function<void()> work) {
    if (given_.empty()) wait_ = static_cast<std::int64_t>(random_() % 4);
    given_.push_back(std::move(work));
  }
  std::mt19937 random_;
  FoldFn fold_ = nullptr;
  Bytes scratch_;
  std::vector<std::function<void()>> given_;
  std::int64_t wait_ = 0;
};

// Buffers and executions of all ranks for one collective. `late`: local steps are LateWork.
class Trial {
 public:
  Trial(ScheduleWorld& world, const Algorithm& algorithm, const Shape& shape, bool late = false)
      : world_(world) {
    for (int r = 0; late && r < world.size(); ++r)
      works_.push_back(std::make_unique<LateWork>(static_cast<unsigned>(r)));
    for (int r = 0; r < world.size(); ++r) {
      auto schedule = std::make_shared<const Schedule>(algorithm.build(world.topology(), r, shape));
      in_order_ = schedule->in_order;
      if (schedule->collective == Collective::reduce) only_at_ = schedule->root;
      executions_.push_back(std::make_unique<Execution>(std::move(schedule), world.of(r)));
    }
  }

  bool in_order() const { return in_order_; }

  // An allreduce or a reduce.
  void fold(Payload payload, std::size_t count, bool in_place, std::uint32_t sequence) {
    const std::uint64_t seed = sequence;
    std::vector<Bytes> in;
    std::vector<Bytes> out;
    for (int r = 0; r < world_.size(); ++r) {
      in.push_back(contribution_of(payload, seed, r, count));
      out.push_back(in_place ? in.back() : Bytes(count * payload_bytes(payload), std::byte{0xcc}));
    }
    const auto has_result = [&](std::size_t r) { return only_at_ < 0 || std::cmp_equal(only_at_, r); };
    Binding b;
    b.count = count;
    b.element_bytes = payload_bytes(payload);
    b.fold = payload_fold(payload);
    b.sequence = sequence;
    run(b, [&](std::size_t r, Binding& mine) {
      mine.data = has_result(r) ? out[r].data() : nullptr;
      mine.input = in_place && has_result(r) ? out[r].data() : in[r].data();
    });
    if (::testing::Test::HasFatalFailure()) return;
    const Bytes& result = out[static_cast<std::size_t>(std::max(0, only_at_))];
    for (int r = 0; r < world_.size(); ++r) {
      const auto k = static_cast<std::size_t>(r);
      if (has_result(k)) {
        ASSERT_TRUE(same_bytes(out[k], result)) << "rank " << r << " has other bits";
      }
      ASSERT_TRUE(same_bytes(in[k], contribution_of(payload, seed, r, count)))
          << "rank " << r << ": input changed";
    }
    if (payload == Payload::floats) {
      ASSERT_TRUE(floats_are_close(result, seed, world_.size(), count));
    } else {
      ASSERT_TRUE(same_bytes(result, folded(payload, seed, world_.size(), count))) << "wrong result";
    }
  }

  void bcast(int root, std::size_t bytes, std::uint32_t sequence) {
    const Bytes source = bytes_of<std::uint8_t>(
        bytes, [&](std::size_t i) { return static_cast<std::uint8_t>(hash(sequence, root, i)); });
    std::vector<Bytes> data(static_cast<std::size_t>(world_.size()), Bytes(bytes));
    data[static_cast<std::size_t>(root)] = source;
    Binding b;
    b.count = bytes;
    b.sequence = sequence;
    run(b, [&](std::size_t r, Binding& mine) {
      mine.data = data[r].data();
      mine.input = data[r].data();
    });
    for (const Bytes& d : data)
      ASSERT_TRUE(same_bytes(d, source)) << "wrong data from root " << root;
  }

  void allgather(std::size_t bytes, std::uint32_t sequence) {
    const auto p = static_cast<std::size_t>(world_.size());
    const Bytes expected = bytes_of<std::uint8_t>(
        p * bytes, [&](std::size_t i) { return static_cast<std::uint8_t>(hash(sequence, 0, i)); });
    std::vector<Bytes> data;
    for (std::size_t r = 0; r < p; ++r) {
      data.emplace_back(p * bytes, std::byte{0xcc});
      std::copy_n(expected.begin() + static_cast<std::ptrdiff_t>(r * bytes), bytes,
                  data[r].begin() + static_cast<std::ptrdiff_t>(r * bytes));
    }
    Binding b;
    b.count = p * bytes;
    b.sequence = sequence;
    run(b, [&](std::size_t r, Binding& mine) { mine.data = data[r].data(); });
    for (std::size_t r = 0; r < p; ++r)
      ASSERT_TRUE(same_bytes(data[r], expected)) << "rank " << r;
  }

  void barrier(std::uint32_t sequence) {
    Binding b;
    b.fold = fold_kernel(DType::u8, Op::bor);
    b.sequence = sequence;
    run(b, [](std::size_t, Binding&) {});
  }

 private:
  template <typename Attach>
  void run(const Binding& binding, Attach attach) {
    std::vector<Execution*> all;
    for (std::size_t r = 0; r < executions_.size(); ++r) {
      Binding mine = binding;
      attach(r, mine);
      if (!works_.empty()) {
        works_[r]->fold_by(binding.fold);
        mine.local = works_[r].get();
        mine.fold = nullptr;
      }
      const Status started = executions_[r]->start(mine);
      ASSERT_TRUE(started.ok()) << started.message();
      all.push_back(executions_[r].get());
    }
    const Status status = drive(all, binding.sequence);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  ScheduleWorld& world_;
  bool in_order_ = false;
  int only_at_ = -1;  // reduce: the root
  std::vector<std::unique_ptr<LateWork>> works_;
  std::vector<std::unique_ptr<Execution>> executions_;
};

class CatalogTest : public ::testing::TestWithParam<WorldKind> {
 protected:
  // Restarted for each: a persistent request does nothing else.
  void try_shape(ScheduleWorld& world, const Algorithm& a, const Shape& shape) {
    SCOPED_TRACE(std::string(collective_name(a.collective)) + " " + a.name + ", " +
                 std::to_string(world.size()) + " ranks on " + std::to_string(world.topology().nodes()) +
                 " nodes, radix " + std::to_string(shape.radix) + ", chunks " + std::to_string(shape.chunks));
    const auto p = static_cast<std::size_t>(world.size());
    if (a.collective == Collective::bcast) {
      for (int root = 0; root < world.size(); ++root) {
        Shape rooted = shape;
        rooted.root = root;
        Trial trial(world, a, rooted);
        for (const std::size_t bytes : {p - 1, std::size_t{5003}, std::size_t{0}}) {
          if (root % 3 != 0 && bytes != p - 1) continue;
          ASSERT_NO_FATAL_FAILURE(trial.bcast(root, bytes, ++sequence_)) << bytes << " bytes";
        }
      }
      return;
    }
    if (a.collective == Collective::reduce) {
      for (const int root : std::set<int>{0, world.size() / 2, world.size() - 1}) {
        Shape rooted = shape;
        rooted.root = root;
        Trial trial(world, a, rooted);
        ASSERT_NO_FATAL_FAILURE(
            fold(trial, root == 0 ? std::vector<std::size_t>{0, p, 1009} : std::vector<std::size_t>{37}))
            << "root " << root;
      }
      return;
    }
    Trial trial(world, a, shape);
    if (a.collective == Collective::allgather) {
      for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{1003}})
        ASSERT_NO_FATAL_FAILURE(trial.allgather(bytes, ++sequence_)) << bytes << " bytes of each";
      return;
    }
    if (a.collective == Collective::barrier) {
      for (int i = 0; i < 3; ++i)
        ASSERT_NO_FATAL_FAILURE(trial.barrier(++sequence_));
      return;
    }
    ASSERT_NO_FATAL_FAILURE(fold(trial, {0, 1, p - 1, 37, 1009}));
  }

  void fold(Trial& trial, const std::vector<std::size_t>& counts) {
    for (const std::size_t count : counts) {
      const bool in_place = ++sequence_ % 2 == 0;
      ASSERT_NO_FATAL_FAILURE(trial.fold(Payload::integers, count, in_place, sequence_))
          << count << " elements";
      ASSERT_NO_FATAL_FAILURE(trial.fold(Payload::floats, count, !in_place, ++sequence_))
          << count << " elements";
      if (!trial.in_order()) continue;
      ASSERT_NO_FATAL_FAILURE(trial.fold(Payload::matrices, count, in_place, ++sequence_))
          << count << " elements";
    }
  }
  std::uint32_t sequence_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Transports, CatalogTest, ::testing::ValuesIn(all_worlds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(CatalogTest, EveryAlgorithmGivesTheSameRightBits) {
  int tried = 0;
  // Each message goes by way of the kernel there, and what a schedule does is the same over every transport.
  const bool few = kSlowBuild || std::string_view(GetParam().name) == "tcp";
  for (int ranks = 1; ranks <= 16; ++ranks) {
    if (few && ranks > 5 && ranks != 8 && ranks != 13) continue;
    for (const TopologyView& topology : topologies(ranks)) {
      ScheduleWorld world(topology, GetParam().make(ranks));
      for (const Algorithm& a : catalog()) {
        if (!fits(a, topology)) continue;
        // Without teams the topology makes no difference.
        if (!a.needs_team && topology.nodes() != ranks) continue;
        for (const Shape& shape : shapes_of(a, topology)) {
          ASSERT_NO_FATAL_FAILURE(try_shape(world, a, shape));
          ++tried;
        }
      }
    }
  }
  EXPECT_GT(tried, 100);
}

// As on a GPU, where messages have to wait for what is done beside the engine.
TEST_P(CatalogTest, LocalStepsThatAreDoneLater) {
  int tried = 0;
  for (const int ranks : kSlowBuild ? std::vector{2, 5} : std::vector{2, 3, 4, 5, 8, 13}) {
    const TopologyView topology = TopologyView::flat(ranks);
    ScheduleWorld world(topology, GetParam().make(ranks));
    for (const Algorithm& a : catalog()) {
      if (a.needs_team || a.collective != Collective::allreduce) continue;
      for (const Shape& shape : shapes_of(a, topology)) {
        SCOPED_TRACE(std::string(a.name) + ", " + std::to_string(ranks) + " ranks");
        Trial trial(world, a, shape, true);
        for (const std::size_t count : {std::size_t{1}, std::size_t{37}, std::size_t{1009}}) {
          const bool in_place = ++sequence_ % 2 == 0;
          ASSERT_NO_FATAL_FAILURE(trial.fold(Payload::integers, count, in_place, sequence_));
          ASSERT_NO_FATAL_FAILURE(trial.fold(Payload::floats, count, !in_place, ++sequence_));
          if (trial.in_order()) {
            ASSERT_NO_FATAL_FAILURE(trial.fold(Payload::matrices, count, in_place, ++sequence_));
          }
          ++tried;
        }
      }
    }
  }
  EXPECT_GT(tried, 50);
}

// A vector of several pieces on each ring.
TEST_P(CatalogTest, LargeVectors) {
  constexpr std::size_t kBytes = kSlowBuild ? 150'001 : 700'001;
  constexpr std::size_t kElements = kSlowBuild ? 12'021 : 50'021;
  for (const int ranks : kSlowBuild ? std::vector{5} : std::vector{2, 5, 8}) {
    for (const TopologyView& topology : topologies(ranks)) {
      ScheduleWorld world(topology, GetParam().make(ranks));
      for (const Algorithm& a : catalog()) {
        if (!fits(a, topology) || a.collective == Collective::barrier) continue;
        for (Shape shape : a.shapes(topology, 1 << 20)) {
          SCOPED_TRACE(std::string(a.name) + ", " + std::to_string(ranks) + " ranks");
          shape.root = ranks - 1;
          Trial trial(world, a, shape);
          if (a.collective == Collective::bcast) {
            ASSERT_NO_FATAL_FAILURE(trial.bcast(shape.root, kBytes, ++sequence_));
          } else if (a.collective == Collective::allgather) {
            ASSERT_NO_FATAL_FAILURE(trial.allgather(kBytes / 4, ++sequence_));
          } else {
            ASSERT_NO_FATAL_FAILURE(trial.fold(Payload::integers, kElements, true, ++sequence_));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::test
