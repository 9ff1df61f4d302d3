#include "sample_algorithms.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "schedule/builder.hpp"

namespace heddle::test {
namespace {

// Exchanges chunk 0 with the partners of member `me` of a group, in hypercube order; `ranks` maps members to
// ranks.
void hypercube(Builder& b, std::int32_t me, const std::vector<std::int32_t>& ranks) {
  for (std::int32_t bit = 1; bit < static_cast<std::int32_t>(ranks.size()); bit *= 2) {
    const std::int32_t partner = ranks[static_cast<std::size_t>(me ^ bit)];
    b.recv_scratch(partner, {0, 1}).send(partner, {0, 1}).wait().reduce({0, 1}, 0, (me & bit) != 0);
  }
}

}  // namespace

Schedule recursive_doubling(std::int32_t size, std::int32_t rank) {
  Builder b(Collective::allreduce, 1);
  std::vector<std::int32_t> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  b.copy_input().in_order();
  hypercube(b, rank, all);
  return std::move(b).finish();
}

Schedule ring(std::int32_t size, std::int32_t rank) {
  const auto chunks = static_cast<std::uint32_t>(size);
  const auto me = static_cast<std::uint32_t>(rank);
  Builder b(Collective::allreduce, chunks);
  b.copy_input();
  if (size == 1) return std::move(b).finish();
  const std::int32_t next = (rank + 1) % size;
  const std::int32_t previous = (rank + size - 1) % size;
  const std::uint32_t behind = (me + chunks - 1) % chunks;
  b.repeat(chunks - 1, -1, [&](Builder& body) {
    body.recv_scratch(previous, {behind, 1}).send(next, {me, 1}).wait().reduce({behind, 1}, 0, true);
  });
  b.repeat(chunks - 1, -1, [&](Builder& body) {
    body.recv(previous, {me, 1}).send(next, {(me + 1) % chunks, 1}).wait();
  });
  return std::move(b).finish();
}

Schedule binomial_bcast(std::int32_t size, std::int32_t rank, std::int32_t root) {
  Builder b(Collective::bcast, 1);
  b.root(root);
  const std::int32_t me = (rank - root + size) % size;
  std::int32_t bit = 1;
  while (bit < size && (me & bit) == 0)
    bit *= 2;
  if (me != 0) b.recv((me - bit + root) % size, {0, 1}).wait();
  for (bit /= 2; bit > 0; bit /= 2) {
    if (me + bit < size) b.send((me + bit + root) % size, {0, 1});
  }
  return std::move(b).finish();
}

Schedule chain_bcast(std::int32_t size, std::int32_t rank, std::uint32_t pieces) {
  Builder b(Collective::bcast, pieces);
  if (rank == 0 && size > 1) b.repeat(pieces, 1, [](Builder& body) { body.send(1, {0, 1}).wait(1); });
  if (rank == 0) return std::move(b).finish();
  const bool last = rank == size - 1;
  const auto land = [&](Builder& body, std::uint32_t piece) {
    body.recv_scratch(rank - 1, {piece, 1}, piece % 2).flag(kRotate);
  };
  // One receive ahead of the piece in hand. The oldest two are the forward of the last piece and the receive
  // of this.
  land(b, 0);
  b.repeat(pieces - 1, 1, [&](Builder& body) {
    land(body, 1);
    body.wait(1).reduce({0, 1}, 0).flag(kRotate);
    if (!last) body.send(rank + 1, {0, 1});
  });
  b.wait(0).reduce({pieces - 1, 1}, (pieces - 1) % 2);
  if (!last) b.send(rank + 1, {pieces - 1, 1});
  Schedule schedule = std::move(b).finish();
  for (Step& step : schedule.steps) {  // the builder writes no copy out of scratch
    if (step.kind == StepKind::reduce) step.kind = StepKind::copy;
  }
  return schedule;
}

Schedule all_to_all_allreduce(std::int32_t size, std::int32_t rank) {
  Builder b(Collective::allreduce, 2);
  b.in_order();
  const Chunks all{0, 2};
  for (std::int32_t r = 0; r < size; ++r) {
    if (r != rank) b.recv_scratch(r, all, static_cast<std::uint32_t>(r), r);
  }
  for (std::int32_t r = 0; r < size; ++r) {
    if (r != rank) b.send(r, all, Slot::input, rank);
  }
  // The builder writes no copy into or out of scratch: the first two folds become that.
  b.reduce(all, static_cast<std::uint32_t>(rank)).wait().reduce(all, 0);
  for (std::int32_t r = 1; r < size; ++r)
    b.reduce(all, static_cast<std::uint32_t>(r));
  Schedule schedule = std::move(b).finish();
  const auto own = std::find_if(schedule.steps.begin(), schedule.steps.end(),
                                [](const Step& step) { return step.kind == StepKind::reduce; });
  own->kind = StepKind::copy;  // scratch[rank] = input
  own->dst = Slot::scratch;
  own->src = Slot::input;
  (own + 2)->kind = StepKind::copy;  // data = scratch[0]
  return schedule;
}

Schedule two_level_allreduce(const TopologyView& topology, std::int32_t rank) {
  Builder b(Collective::allreduce, 1);
  std::vector<std::int32_t> leaders;
  leaders.reserve(static_cast<std::size_t>(topology.nodes()));
  for (std::int32_t node = 0; node < topology.nodes(); ++node)
    leaders.push_back(topology.members(node).front());
  b.team(StepKind::team_reduce, Slot::input, 0, {0, 1});
  if (topology.member_index(rank) == 0) hypercube(b, topology.node_of(rank), leaders);
  b.team(StepKind::team_bcast, Slot::data, 0, {0, 1});
  return std::move(b).finish();
}

Schedule of_domains_allreduce(const TopologyView& topology, std::int32_t rank) {
  Builder b(Collective::allreduce, 2);
  b.in_order();
  const std::int32_t place = topology.member_of(TeamKind::domain, rank);
  for (std::uint32_t k = 0; k < 2; ++k)
    b.team(StepKind::team_reduce, Slot::input, static_cast<std::int32_t>(k), {k, 1}, TeamKind::domain);
  if (place < 2) {
    const auto own = static_cast<std::uint32_t>(place);
    b.team(StepKind::team_allreduce, Slot::data, 0, {own, 1}, TeamKind::peers);
  }
  for (std::uint32_t k = 0; k < 2; ++k)
    b.team(StepKind::team_bcast, Slot::data, static_cast<std::int32_t>(k), {k, 1}, TeamKind::domain);
  return std::move(b).finish();
}

Schedule team_only_allreduce() {
  Builder b(Collective::allreduce, 3);
  b.in_order();
  b.repeat(3, 1, [](Builder& body) { body.team(StepKind::team_allreduce, Slot::input, 0, {0, 1}); });
  return std::move(b).finish();
}

std::vector<Sample> samples() {
  std::vector<Sample> all;
  const auto add = [&](const char* name, const TopologyView& topology,
                       const std::function<Schedule(std::int32_t)>& build) {
    std::vector<Schedule> schedules;
    schedules.reserve(static_cast<std::size_t>(topology.size()));
    for (std::int32_t rank = 0; rank < topology.size(); ++rank)
      schedules.push_back(build(rank));
    all.push_back({name, topology, std::move(schedules)});
  };
  add("recursive_doubling_4", TopologyView::flat(4), [](std::int32_t r) { return recursive_doubling(4, r); });
  add("ring_3", TopologyView::flat(3), [](std::int32_t r) { return ring(3, r); });
  add("ring_4", TopologyView::flat(4), [](std::int32_t r) { return ring(4, r); });
  add("binomial_bcast_6", TopologyView::flat(6), [](std::int32_t r) { return binomial_bcast(6, r, 2); });
  add("chain_bcast_4", TopologyView::flat(4), [](std::int32_t r) { return chain_bcast(4, r, 4); });
  add("all_to_all_3", TopologyView::flat(3), [](std::int32_t r) { return all_to_all_allreduce(3, r); });
  const TopologyView uneven({{0, 1, 0, 1, 0}});
  add("two_level_5", uneven, [uneven](std::int32_t r) { return two_level_allreduce(uneven, r); });
  add("team_only_3", TopologyView::one_node(3), [](std::int32_t) { return team_only_allreduce(); });
  const TopologyView domains = TopologyView::of_domains({0, 0, 1, 1, 1});
  add("of_domains_5", domains, [domains](std::int32_t r) { return of_domains_allreduce(domains, r); });
  return all;
}

}  // namespace heddle::test
