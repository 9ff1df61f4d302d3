#include "collectives/halving.hpp"

#include <algorithm>
#include <vector>

#include "collectives/pipeline.hpp"
#include "collectives/trees.hpp"

namespace heddle {
namespace {

// Sends the chunks from `give` on to a partner and folds the partner's into those from `keep` on. While the
// input is still in place of the data, what is kept is copied on the way.
struct Exchange {
  std::int32_t partner;
  bool partner_is_lower;
  std::uint32_t give;
  std::uint32_t keep;
  std::uint32_t length;
  std::uint32_t pieces;
  Slot from;

  void emit(Builder& b) const {
    using Iteration = Pipeline::Iteration;
    const std::uint32_t piece = length / pieces;
    const std::int64_t delay = pieces == 1 ? 0 : 1;  // a piece is folded while the next one arrives
    const auto part = [piece](std::uint32_t start, std::int64_t i) {
      return Chunks{start + piece * static_cast<std::uint32_t>(i), piece};
    };
    const auto unit = [delay](std::int64_t i) { return static_cast<std::uint32_t>(i % (delay + 1)); };
    const Pipeline::Window moving{0, pieces};
    const Pipeline::Window folding{delay, pieces + delay};
    Pipeline p(static_cast<std::int32_t>(piece));
    const int recv = p.open(
        moving, [&](Builder& to, Iteration i) { to.recv_scratch(partner, part(keep, i), unit(i)); }, true);
    p.open(moving, [&](Builder& to, Iteration i) { to.send(partner, part(give, i), from); });
    if (from == Slot::input)
      p.act(folding, [&](Builder& to, Iteration i) { to.copy_input(part(keep, i - delay)); });
    p.wait_for({{recv, static_cast<int>(delay)}});
    p.act(
        folding,
        [&](Builder& to, Iteration i) {
          to.reduce(part(keep, i - delay), unit(i - delay), partner_is_lower);
        },
        true);
    p.emit(b);
    // What was given away may be received again, and what was kept is sent next.
    b.wait();
  }
};

// Both of a pair fold one half; the lower rank then gets the upper half from its neighbour and takes part for
// both.
Slot fold_pair(Builder& b, const Participants& fold, std::int32_t rank, std::uint32_t chunks,
               std::uint32_t pieces) {
  if (!fold.paired(rank)) return Slot::input;
  const std::uint32_t half = chunks / 2;
  if (fold.participates(rank)) {
    Exchange{rank + 1, false, half, 0, half, pieces, Slot::input}.emit(b);
    b.recv(rank + 1, {half, half}).wait();
  } else {
    Exchange{rank - 1, true, 0, half, half, pieces, Slot::input}.emit(b);
    b.send(rank - 1, {half, half}).wait();
  }
  return Slot::data;
}

}  // namespace

std::uint32_t halving_chunks(std::int32_t size, std::uint32_t pieces) {
  return static_cast<std::uint32_t>(Participants(size).count) * pieces;
}

namespace {

// Which chunks, `length` from `first` on, a rank has folded over all ranks. None: another takes part for it.
Chunks halving_scatter(Builder& b, const Participants& fold, std::int32_t rank, std::uint32_t pieces,
                       const Butterfly& butterfly) {
  const std::uint32_t chunks = static_cast<std::uint32_t>(fold.count) * pieces;
  b.scratch(pieces == 1 ? 1 : 2);
  Slot from = fold_pair(b, fold, rank, chunks, pieces);
  if (!fold.participates(rank)) return {0, 0};
  const std::int32_t me = fold.index_of(rank);
  const std::int32_t rounds = floor_log2(fold.count);
  Chunks held{0, chunks};
  for (std::int32_t round = 0; round < rounds; ++round) {
    held.count /= 2;
    const std::int32_t partner = butterfly.partner(me, round, rounds);
    const bool lower = butterfly.keeps_lower(me, round, rounds);
    const std::uint32_t give = lower ? held.first + held.count : held.first;
    if (!lower) held.first += held.count;
    Exchange{fold.rank_of(partner), !lower, give, held.first, held.count, pieces, from}.emit(b);
    from = Slot::data;
  }
  return held;
}

}  // namespace

void halving_reduce(Builder& b, std::int32_t size, std::int32_t rank, std::int32_t root,
                    std::uint32_t pieces) {
  if (size == 1) {
    b.copy_input();
    return;
  }
  const Participants fold(size);
  auto [first, length] = halving_scatter(b, fold, rank, pieces, kNearestFirst);
  const Chunks all{0, halving_chunks(size, pieces)};
  if (length == 0) {
    if (rank == root) b.recv(rank - 1, all);
    return;
  }
  const std::int32_t me = fold.index_of(rank);
  const std::int32_t goal = fold.index_of(root);
  for (std::int32_t round = floor_log2(fold.count) - 1; round >= 0; --round) {
    const std::int32_t partner = fold.rank_of(me ^ (1 << round));
    if ((me >> round & 1) != (goal >> round & 1)) {
      b.send(partner, {first, length});
      return;
    }
    const bool lower = kNearestFirst.keeps_lower(me, round, 0);
    b.recv(partner, {lower ? first + length : first - length, length}).wait();
    if (!lower) first -= length;
    length *= 2;
  }
  if (!fold.participates(root)) b.send(root, all);
}

void halving_allreduce(Builder& b, std::int32_t size, std::int32_t rank, std::uint32_t pieces,
                       const Butterfly& butterfly) {
  const Participants fold(size);
  const std::uint32_t chunks = halving_chunks(size, pieces);
  if (size == 1) {
    b.copy_input();
    return;
  }
  auto [first, length] = halving_scatter(b, fold, rank, pieces, butterfly);
  if (length == 0) {
    b.recv(rank - 1, {0, chunks});
    return;
  }
  const std::int32_t me = fold.index_of(rank);
  const std::int32_t rounds = floor_log2(fold.count);
  for (std::int32_t round = rounds - 1; round >= 0; --round) {
    const std::int32_t partner = butterfly.partner(me, round, rounds);
    const std::uint32_t theirs = butterfly.keeps_lower(me, round, rounds) ? first + length : first - length;
    b.recv(fold.rank_of(partner), {theirs, length}).send(fold.rank_of(partner), {first, length}).wait();
    first = std::min(first, theirs);
    length *= 2;
  }
  if (fold.paired(rank)) b.send(rank + 1, {0, chunks});
}

namespace {

// Participants whose numbers differ in one digit: member j is `first` + j * `step`, and `place` is this
// one's.
struct Group {
  std::int32_t first;
  std::int32_t step;
  std::int32_t size;
  std::int32_t place;

  std::int32_t above(std::int32_t distance) const { return (place + distance) % size; }
  std::int32_t below(std::int32_t distance) const { return (place + size - distance) % size; }
  std::int32_t participant(std::int32_t member) const { return first + member * step; }
};

// The groups of a participant, nearest first.
std::vector<Group> groups_of(const Participants& fold, std::int32_t me) {
  std::vector<Group> groups;
  std::int32_t step = 1;
  for (const std::int32_t size : fold.widths) {
    const std::int32_t place = me / step % size;
    groups.push_back({me - place * step, step, size, place});
    step *= size;
  }
  return groups;
}

// Chunks from `first` on, `length` for each member of a group: everyone gets its own from all others and
// folds them in the order of members, going outwards from its own.
void scatter_fold(Builder& b, const Participants& fold, const Group& group, std::uint32_t first,
                  std::uint32_t length, Slot from) {
  const auto part = [&](std::int32_t member) {
    return Chunks{first + static_cast<std::uint32_t>(member) * length, length};
  };
  const auto unit = [&](std::int32_t member) {
    return static_cast<std::uint32_t>(member < group.place ? member : member - 1);
  };
  for (std::int32_t d = 1; d < group.size; ++d) {
    b.recv_scratch(fold.rank_of(group.participant(group.below(d))), part(group.place), unit(group.below(d)));
    b.send(fold.rank_of(group.participant(group.above(d))), part(group.above(d)), from);
  }
  if (from == Slot::input) b.copy_input(part(group.place));
  b.wait();
  for (std::int32_t lower = group.place - 1; lower >= 0; --lower)
    b.reduce(part(group.place), unit(lower), true);
  for (std::int32_t upper = group.place + 1; upper < group.size; ++upper)
    b.reduce(part(group.place), unit(upper));
}

}  // namespace

std::uint32_t multiway_chunks(std::int32_t size, std::int32_t radix) {
  const auto count = static_cast<std::uint32_t>(Participants(size, radix).count);
  return count % 2 == 0 ? count : 2 * count;  // pairs fold halves
}

void multiway_allreduce(Builder& b, std::int32_t size, std::int32_t rank, std::int32_t radix) {
  const Participants fold(size, radix);
  const std::uint32_t chunks = multiway_chunks(size, radix);
  if (size == 1) {
    b.copy_input();
    return;
  }
  b.scratch(static_cast<std::uint32_t>(std::max(1, fold.widest() - 1)));
  Slot from = fold_pair(b, fold, rank, chunks, 1);
  if (!fold.participates(rank)) {
    b.recv(rank - 1, {0, chunks});
    return;
  }
  const std::vector<Group> groups = groups_of(fold, fold.index_of(rank));
  std::uint32_t first = 0;
  std::uint32_t length = chunks;
  for (const Group& group : groups) {
    length /= static_cast<std::uint32_t>(group.size);
    scatter_fold(b, fold, group, first, length, from);
    first += static_cast<std::uint32_t>(group.place) * length;
    from = Slot::data;
  }
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
    const std::uint32_t base = first - static_cast<std::uint32_t>(group->place) * length;
    for (std::int32_t d = 1; d < group->size; ++d) {
      b.recv(fold.rank_of(group->participant(group->below(d))),
             {base + static_cast<std::uint32_t>(group->below(d)) * length, length});
      b.send(fold.rank_of(group->participant(group->above(d))), {first, length});
    }
    b.wait();
    first = base;
    length *= static_cast<std::uint32_t>(group->size);
  }
  if (fold.paired(rank)) b.send(rank + 1, {0, chunks});
}

void multiway_bcast(Builder& b, const Places& places, std::int32_t place, std::int32_t radix) {
  const std::int32_t size = places.size();
  const Participants fold(size, radix);
  const std::uint32_t chunks = multiway_chunks(size, radix);
  const auto rank_of = [&](std::int32_t participant) { return places.rank_at(fold.rank_of(participant)); };
  if (!fold.participates(place)) {
    b.recv(places.rank_at(place - 1), {0, chunks});
    return;
  }
  const std::int32_t me = fold.index_of(place);
  const std::vector<Group> groups = groups_of(fold, me);
  std::uint32_t first = 0;
  std::uint32_t length = chunks;
  // Of the group of participants that have no number above its own digit the first one has everything that
  // the others are to get.
  const auto has_from_scatter = [](const Group& group) { return group.first < group.step; };
  for (const Group& group : groups) {
    length /= static_cast<std::uint32_t>(group.size);
    const auto part = [&](std::int32_t member) {
      return Chunks{first + static_cast<std::uint32_t>(member) * length, length};
    };
    if (has_from_scatter(group) && group.place > 0) {
      b.recv(rank_of(group.first), part(group.place)).wait();
    } else if (has_from_scatter(group)) {
      for (std::int32_t member = 1; member < group.size; ++member)
        b.send(rank_of(group.participant(member)), part(member));
      b.wait();  // messages share the link: the next ones, for fewer, would hold these up
    }
    first += static_cast<std::uint32_t>(group.place) * length;
  }
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
    const std::uint32_t base = first - static_cast<std::uint32_t>(group->place) * length;
    const auto has_all = [&](std::int32_t member) { return member == 0 && has_from_scatter(*group); };
    for (std::int32_t d = 1; d < group->size; ++d) {
      const std::int32_t below = group->below(d);
      if (!has_all(group->place)) {
        b.recv(rank_of(group->participant(below)),
               {base + static_cast<std::uint32_t>(below) * length, length});
      }
      if (!has_all(group->above(d))) b.send(rank_of(group->participant(group->above(d))), {first, length});
    }
    b.wait();
    first = base;
    length *= static_cast<std::uint32_t>(group->size);
  }
  if (fold.paired(place)) b.send(places.rank_at(place + 1), {0, chunks});
}

}  // namespace heddle
