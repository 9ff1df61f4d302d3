// Does the verifier bite? Correct schedules are damaged in every field of every step, on one rank and on all
// ranks alike. Each mutant that the verifier accepts must still compute the right result, as an adversarial
// run on numbers (interpreter.hpp) finds out many times over.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "interpreter.hpp"
#include "mutants.hpp"
#include "sample_algorithms.hpp"
#include "schedule/cursor.hpp"
#include "schedule/dump.hpp"
#include "schedule/verifier.hpp"

namespace heddle::test {
namespace {

constexpr std::uint64_t kTrials = 60;          // of each accepted mutant
constexpr std::uint64_t kTrialsRejected = 12;  // of each rejected one, for the statistics only

std::string run_all_ways(const Sample& sample, std::uint64_t trials) {
  for (std::uint64_t seed = 0; seed < trials; ++seed) {
    const Trial trial{seed, seed % 2 == 0, seed % 3 == 0};
    std::string wrong = run_on_numbers(sample.topology, sample.schedules, trial);
    if (!wrong.empty()) return wrong + " (seed " + std::to_string(seed) + ")";
  }
  return "";
}

using Mutation = std::pair<std::string, std::function<void(Schedule&)>>;

// Adds to the body length of the repeat that step `i` is in, if any.
void resize_body(Schedule& s, std::size_t i, std::int32_t by) {
  for (std::size_t head = 0; head < i; ++head) {
    Step& h = s.steps[head];
    if (h.kind == StepKind::repeat && head + static_cast<std::size_t>(h.peer) >= i) h.peer += by;
  }
}

void structure_mutations(std::size_t i, std::vector<Mutation>& out) {
  const auto at = [i](const Schedule& s) { return s.steps.begin() + static_cast<std::ptrdiff_t>(i); };
  out.emplace_back("drop", [=](Schedule& s) {
    resize_body(s, i, -1);
    s.steps.erase(at(s));
  });
  out.emplace_back("drop, body length kept", [=](Schedule& s) { s.steps.erase(at(s)); });
  out.emplace_back("duplicate", [=](Schedule& s) {
    resize_body(s, i, 1);
    s.steps.insert(at(s), s.steps[i]);
  });
  out.emplace_back("duplicate, body length kept", [=](Schedule& s) { s.steps.insert(at(s), s.steps[i]); });
  out.emplace_back("swap with next", [=](Schedule& s) {
    if (i + 1 < s.steps.size()) std::swap(s.steps[i], s.steps[i + 1]);
  });
}

std::vector<Mutation> mutations(std::size_t i) {
  std::vector<Mutation> out;
  structure_mutations(i, out);
  const auto field = [&](const std::string& name, auto change) {
    out.emplace_back(name, [i, change](Schedule& s) { change(s.steps[i]); });
  };
  for (int kind = 0; kind <= 9; ++kind) {
    field("kind " + std::to_string(kind), [kind](Step& s) { s.kind = static_cast<StepKind>(kind); });
  }
  for (int slot = 0; slot <= 3; ++slot) {
    field("dst " + std::to_string(slot), [slot](Step& s) { s.dst = static_cast<Slot>(slot); });
    field("src " + std::to_string(slot), [slot](Step& s) { s.src = static_cast<Slot>(slot); });
  }
  for (unsigned bit = 1; bit <= 8; bit *= 2) {
    field("flags ^ " + std::to_string(bit), [bit](Step& s) { s.flags = (s.flags ^ bit) & 0xf; });
  }
  for (unsigned by = 1; by < 16; by += 7) {
    field("lane + " + std::to_string(by), [by](Step& s) { s.lane = (s.lane + by) & 0xf; });
  }
  for (const std::int32_t by : {-2, -1, 1, 2}) {
    const auto bits = static_cast<std::uint32_t>(by);
    const std::string sum = " + " + std::to_string(by);
    field("peer" + sum, [by](Step& s) { s.peer += by; });
    field("chunk" + sum, [bits](Step& s) { s.chunk += bits; });
    field("count" + sum, [bits](Step& s) {
      if (s.kind != StepKind::repeat || s.count + bits < 1000) s.count += bits;
    });
    field("unit" + sum, [bits](Step& s) { s.unit += bits; });
  }
  field("count 0", [](Step& s) { s.count = 0; });
  field("stride reversed", [](Step& s) { s.chunk = s.kind == StepKind::repeat ? 0 - s.chunk : s.chunk; });
  return out;
}

std::vector<Mutation> header_mutations() {
  return {{"max_open + 1", [](Schedule& s) { ++s.max_open; }},
          {"max_open - 1", [](Schedule& s) { --s.max_open; }},
          {"scratch_units - 1", [](Schedule& s) { s.scratch_units -= s.scratch_units > 0 ? 1 : 0; }},
          {"unit_chunks - 1", [](Schedule& s) { s.unit_chunks -= s.unit_chunks > 0 ? 1 : 0; }},
          {"chunks + 1", [](Schedule& s) { ++s.chunks; }},
          {"chunks - 1", [](Schedule& s) { --s.chunks; }},
          {"root + 1", [](Schedule& s) { s.root += has_root(s.collective) ? 1 : 0; }},
          {"in_order", [](Schedule& s) { s.in_order = !s.in_order; }},
          {"allreduce", [](Schedule& s) { s.collective = Collective::allreduce; }},
          {"bcast", [](Schedule& s) { s.collective = Collective::bcast; }},
          {"reduce", [](Schedule& s) { s.collective = Collective::reduce; }},
          {"allgather", [](Schedule& s) { s.collective = Collective::allgather; }}};
}

bool same(const Schedule& a, const Schedule& b) {
  return a.collective == b.collective && a.root == b.root && a.chunks == b.chunks &&
         a.in_order == b.in_order && a.scratch_units == b.scratch_units && a.unit_chunks == b.unit_chunks &&
         a.max_open == b.max_open && a.steps == b.steps;
}

// A step without what its kind does not read: mutants there are no mutants at all.
Step meaning(Step s, bool in_repeat) {
  const bool message = s.kind == StepKind::send || s.kind == StepKind::recv;
  const bool control = s.kind == StepKind::wait || s.kind == StepKind::repeat;
  const bool team = s.kind == StepKind::team_reduce || s.kind == StepKind::team_bcast;
  const bool of_all = s.kind == StepKind::team_allreduce || s.kind == StepKind::team_allgather;
  if (!message && !team && !of_all) s.lane = 0;
  if (!message && !team && s.kind != StepKind::repeat) s.peer = 0;
  if (control || s.kind == StepKind::send) s.dst = Slot::data;
  if (control || s.kind == StepKind::recv) s.src = Slot::data;
  if (s.dst != Slot::scratch && s.src != Slot::scratch) s.unit = 0;
  if (s.kind == StepKind::wait) s.chunk = 0;
  unsigned flags = s.flags;
  if (s.kind != StepKind::reduce) flags &= ~unsigned{kSourceFirst};
  if (!in_repeat || control) flags &= ~unsigned{kFixed | kRotate};
  if (s.dst != Slot::scratch && s.src != Slot::scratch) flags &= ~unsigned{kRotate};
  s.flags = flags & 0xf;
  return s;
}

bool same_meaning(const Schedule& a, const Schedule& b) {
  if (a.steps.size() != b.steps.size()) return false;
  Schedule bare = a;
  bare.steps = b.steps;
  if (!same(bare, b)) return false;
  std::size_t body_end = 0;
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    if (meaning(a.steps[i], i < body_end) != meaning(b.steps[i], i < body_end)) return false;
    if (a.steps[i].kind == StepKind::repeat) body_end = i + 1 + static_cast<std::size_t>(a.steps[i].peer);
  }
  return true;
}

struct Counts {
  int mutants = 0;
  int rejected = 0;
  int rejected_seen_wrong = 0;  // of those rejected: also went wrong on numbers
  int accepted = 0;
  int accepted_unread = 0;  // of those accepted: only fields that the step's kind does not read were changed
};

class Mutants : public ::testing::TestWithParam<Sample> {
 protected:
  // `rank` -1: on all ranks.
  void try_one(const Mutation& mutation, std::int32_t rank, std::size_t step, bool recount) {
    const Sample& original = GetParam();
    Sample mutant = original;
    bool changed = false;
    bool unread = true;
    for (std::size_t r = 0; r < mutant.schedules.size(); ++r) {
      Schedule& s = mutant.schedules[r];
      if (rank >= 0 && r != static_cast<std::size_t>(rank)) continue;
      if (step >= s.steps.size()) continue;
      mutation.second(s);
      if (recount) recount_open(s);
      changed = changed || !same(s, original.schedules[r]);
      unread = unread && same_meaning(s, original.schedules[r]);
    }
    if (!changed) return;
    ++counts_.mutants;
    const Status status = verify(mutant.topology, schedule_of(mutant.schedules));
    const std::string wrong = run_all_ways(mutant, status.ok() ? kTrials : kTrialsRejected);
    if (!status.ok()) {
      ++counts_.rejected;
      if (!wrong.empty()) ++counts_.rejected_seen_wrong;
      return;
    }
    ++counts_.accepted;
    if (unread) ++counts_.accepted_unread;
    ASSERT_EQ(wrong, "") << "accepted: " << mutation.first << " at step " << step << " of rank " << rank
                         << "\n"
                         << dump(mutant.schedules[rank < 0 ? 0 : static_cast<std::size_t>(rank)]);
  }

  Counts counts_;
};

TEST_P(Mutants, AcceptedOnesStillComputeTheRightResult) {
  const Sample& sample = GetParam();
  const Status status = verify(sample.topology, schedule_of(sample.schedules));
  ASSERT_TRUE(status.ok()) << status.message() << "\n" << dump(sample.schedules.front());
  ASSERT_EQ(run_all_ways(sample, 10 * kTrials), "");

  const auto size = static_cast<std::int32_t>(sample.schedules.size());
  for (std::int32_t rank = -1; rank < size; ++rank) {
    std::size_t steps = 0;
    for (std::int32_t r = std::max(rank, 0); r < (rank < 0 ? size : rank + 1); ++r) {
      steps = std::max(steps, sample.schedules[static_cast<std::size_t>(r)].steps.size());
    }
    for (std::size_t step = 0; step < steps; ++step) {
      for (const Mutation& mutation : mutations(step)) {
        try_one(mutation, rank, step, true);
        if (HasFatalFailure()) return;
      }
    }
    for (const Mutation& mutation : header_mutations()) {
      try_one(mutation, rank, 0, false);
      if (HasFatalFailure()) return;
    }
  }
  std::printf(
      "%s: %d mutants, %d rejected (%d of them also seen to fail), %d accepted and equivalent (%d of them in "
      "fields that are not read)\n",
      sample.name.c_str(), counts_.mutants, counts_.rejected, counts_.rejected_seen_wrong, counts_.accepted,
      counts_.accepted_unread);
  RecordProperty("mutants", counts_.mutants);
  RecordProperty("rejected", counts_.rejected);
  RecordProperty("accepted", counts_.accepted);
  EXPECT_GT(counts_.rejected, 0);
}

// By any stride, however far below 0 it goes.
TEST(Interpreter, RepeatsWrapAroundAsTheCursorDoes) {
  const TopologyView topology = TopologyView::one_node(2);
  for (const std::int32_t stride : {-10, -7, -4, -2, -1, 1, 2, 4, 7, 10}) {
    const auto build = [stride](std::int32_t) {
      Builder b(Collective::allreduce, 3);
      b.repeat(3, stride, [](Builder& body) { body.team(StepKind::team_allreduce, Slot::input, 0, {1, 1}); });
      return std::move(b).finish();
    };
    const std::vector<Schedule> schedules{build(0), build(1)};
    EXPECT_EQ(verify(topology, schedule_of(schedules)).message(), "") << stride;
    EXPECT_EQ(run_on_numbers(topology, schedules, {}), "") << stride;
  }
}

TEST(Interpreter, ATeamOfOneHasNoVerbs) {
  const auto build = [](std::int32_t, TeamKind team) {
    Builder b(Collective::allreduce, 1);
    b.team(StepKind::team_allreduce, Slot::input, 0, {0, 1}, team);
    return std::move(b).finish();
  };
  EXPECT_EQ(
      run_on_numbers(TopologyView::one_node(2), {build(0, TeamKind::node), build(1, TeamKind::node)}, {}),
      "");
  EXPECT_NE(run_on_numbers(TopologyView::flat(2), {build(0, TeamKind::node), build(1, TeamKind::node)}, {}),
            "");
  EXPECT_EQ(
      run_on_numbers(TopologyView::one_node(2), {build(0, TeamKind::domain), build(1, TeamKind::domain)}, {}),
      "no team of domains");
}

INSTANTIATE_TEST_SUITE_P(All, Mutants, ::testing::ValuesIn(samples()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace heddle::test
