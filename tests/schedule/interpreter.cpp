#include "interpreter.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>

#include "schedule/split.hpp"
#include "unrolled.hpp"

namespace heddle::test {
namespace {

struct Message {
  std::int32_t source;
  std::int32_t target;
  int lane;
  std::span<Number> from;
  std::span<Number> into;
  std::size_t send = 0;  // numbers of the operations on their ranks
  std::size_t receive = 0;
  bool sent = false;
  bool received = false;
  bool delivered = false;
  bool buffered = false;  // the payload was copied out when the send was opened
  std::vector<Number> payload;
};

class World {
 public:
  World(const TopologyView& topology, const std::vector<Schedule>& schedules, const Trial& trial);
  void make_alike();
  void run();
  void check() const;
  std::vector<std::uint64_t> folds() const;

 private:
  struct Op {
    bool done = false;
  };
  struct Rank {
    const Schedule* schedule = nullptr;
    std::vector<Flat> program;
    std::size_t pc = 0;
    std::vector<Number> original;
    std::vector<Number> data;
    std::vector<Number> own_input;  // out of place
    std::vector<Number> scratch;
    std::vector<Op> ops;  // every operation ever opened
    std::size_t retired = 0;
    bool in_place = false;
    bool in_team = false;
    std::uint64_t priority = 0;
  };

  std::vector<Number>& input(Rank& r) const {
    return r.in_place || !heddle::folds(r.schedule->collective) ? r.data : r.own_input;
  }
  Number noise() { return {random_(), {random_(), random_(), random_(), random_()}, random_()}; }
  bool chance(unsigned percent) { return random_() % 100 < percent; }
  std::span<Number> place(Rank& r, Slot slot);
  bool runnable(const Rank& r) const;
  void step(std::int32_t rank);
  void local(Rank& r, const Step& step);
  void open_message(std::int32_t rank);
  void enter_team(std::int32_t rank);
  void run_team(const std::vector<std::int32_t>& members);
  void gather_team(const std::vector<std::int32_t>& members);
  bool deliverable(const Message& m) const { return m.sent && m.received && !m.delivered; }
  void deliver(Message& m);
  bool deliver_one();
  bool step_one();

  const TopologyView& topology_;
  Trial trial_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::deque<Message> messages_;
  std::size_t count_ = 0;  // elements
  unsigned deliver_percent_ = 50;
  unsigned buffered_percent_ = 50;
  bool scribble_ = false;
  bool strict_priority_ = false;
};

World::World(const TopologyView& topology, const std::vector<Schedule>& schedules, const Trial& trial)
    : topology_(topology), trial_(trial), random_(trial.seed) {
  static constexpr std::array<unsigned, 4> kHowOften{0, 10, 50, 100};
  deliver_percent_ = kHowOften[random_() % 4];
  buffered_percent_ = trial.rendezvous_only ? 0 : kHowOften[random_() % 4];
  scribble_ = chance(50);
  strict_priority_ = chance(60);
  const std::uint32_t chunks = schedules.front().chunks;
  if (chunks == 0) throw Wrong{"no chunks"};
  // Chunks of different lengths, also for one chunk more than one element; but what ranks gather is as long.
  const bool gathers = schedules.front().collective == Collective::allgather;
  if (gathers && std::cmp_not_equal(chunks, schedules.size())) throw Wrong{"not a chunk for each rank"};
  count_ = gathers ? chunks * 2 : chunks * 2 + 1;
  for (const Schedule& s : schedules) {
    Rank& r = ranks_.emplace_back();
    r.schedule = &s;
    if (s.chunks != chunks) throw Wrong{"chunks disagree"};
    r.program = unroll(s);
    r.priority = random_();
    for (std::size_t i = 0; i < count_; ++i) {
      r.original.push_back(noise());
      r.data.push_back(noise());
    }
    const bool is_root = s.root == static_cast<std::int32_t>(ranks_.size()) - 1;
    // The others of a reduce have no data of the caller's.
    r.in_place = trial.in_place && !gathers && (s.collective != Collective::reduce || is_root);
    const bool has_data = s.collective == Collective::bcast ? is_root : r.in_place;
    if (has_data) r.data = r.original;
    if (gathers) {
      const std::size_t own = 2 * (ranks_.size() - 1);
      std::copy_n(r.original.begin() + static_cast<std::ptrdiff_t>(own), 2,
                  r.data.begin() + static_cast<std::ptrdiff_t>(own));
    }
    r.own_input = r.original;
    const std::size_t unit = Split(count_, chunks).longest(std::min(s.unit_chunks, chunks));
    for (std::size_t i = 0; i < unit * s.scratch_units; ++i)
      r.scratch.push_back(noise());
  }
}

// Every rank's elements become one number, out of place.
void World::make_alike() {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    ranks_[rank].own_input.assign(count_, Number{1, {}, rank + 1});
}

std::vector<std::uint64_t> World::folds() const {
  std::vector<std::uint64_t> bits;
  const std::int32_t has_result = ranks_.front().schedule->root;
  for (const Number& element : ranks_[static_cast<std::size_t>(has_result)].data)
    bits.push_back(element.bits);
  return bits;
}

std::span<Number> World::place(Rank& r, Slot slot) {
  const Flat& flat = r.program[r.pc];
  const Split split(count_, r.schedule->chunks);
  if (flat.step.count == 0) throw Wrong{"empty range"};
  if (flat.chunk >= r.schedule->chunks || flat.step.count > r.schedule->chunks - flat.chunk) {
    throw Wrong{"chunk out of range"};
  }
  const std::size_t length = split.length(flat.chunk, flat.step.count);
  switch (slot) {
    case Slot::data:
      return std::span(r.data).subspan(split.begin(flat.chunk), length);
    case Slot::input:
      return std::span(input(r)).subspan(split.begin(flat.chunk), length);
    case Slot::scratch: {
      const std::size_t unit = split.longest(std::min(r.schedule->unit_chunks, r.schedule->chunks));
      if (flat.unit >= r.schedule->scratch_units || length > unit) throw Wrong{"scratch out of range"};
      return std::span(r.scratch).subspan(flat.unit * unit, length);
    }
  }
  throw Wrong{"unknown slot"};
}

bool World::runnable(const Rank& r) const {
  if (r.pc >= r.program.size() || r.in_team) return false;
  const Step& s = r.program[r.pc].step;
  if (s.kind != StepKind::wait || r.ops.size() - r.retired <= s.count) return true;
  return std::all_of(r.ops.begin() + static_cast<std::ptrdiff_t>(r.retired), r.ops.end() - s.count,
                     [](const Op& o) { return o.done; });
}

void World::step(std::int32_t rank) {
  Rank& r = ranks_[static_cast<std::size_t>(rank)];
  const Step& s = r.program[r.pc].step;
  switch (s.kind) {
    case StepKind::send:
    case StepKind::recv:
      open_message(rank);
      break;
    case StepKind::reduce:
    case StepKind::copy:
      local(r, s);
      break;
    case StepKind::wait:
      r.retired = std::max(r.retired, r.ops.size() - std::min<std::size_t>(r.ops.size(), s.count));
      break;
    case StepKind::team_reduce:
    case StepKind::team_bcast:
    case StepKind::team_allreduce:
    case StepKind::team_allgather:
      enter_team(rank);
      return;
    default:
      throw Wrong{"unknown step"};
  }
  ++r.pc;
}

void World::local(Rank& r, const Step& s) {
  const std::span<Number> src = place(r, s.src);
  const std::span<Number> dst = place(r, s.dst);
  if (s.dst == Slot::input) throw Wrong{"writes input"};
  if (s.kind == StepKind::reduce && !heddle::folds(r.schedule->collective))
    throw Wrong{"reduces where nothing is"};
  for (std::size_t i = 0; i < dst.size(); ++i) {
    if (s.kind == StepKind::copy) {
      dst[i] = src[i];
    } else {
      dst[i] = (s.flags & kSourceFirst) != 0 ? op(src[i], dst[i]) : op(dst[i], src[i]);
    }
  }
}

void World::open_message(std::int32_t rank) {
  Rank& r = ranks_[static_cast<std::size_t>(rank)];
  const Step& s = r.program[r.pc].step;
  const bool sends = s.kind == StepKind::send;
  if (s.peer < 0 || s.peer >= topology_.size() || s.peer == rank) throw Wrong{"no such peer"};
  if (!sends && s.dst == Slot::input) throw Wrong{"receives into input"};
  const std::span<Number> span = place(r, sends ? s.src : s.dst);
  const std::size_t number = r.ops.size();
  r.ops.emplace_back();
  if (r.ops.size() - r.retired > r.schedule->max_open) throw Wrong{"more operations open than max_open"};
  if (!sends && scribble_) {
    for (Number& n : span)
      n = noise();
  }
  const std::int32_t source = sends ? rank : s.peer;
  const std::int32_t target = sends ? s.peer : rank;
  auto m = std::find_if(messages_.begin(), messages_.end(), [&](const Message& o) {
    return o.source == source && o.target == target && o.lane == s.lane && !(sends ? o.sent : o.received);
  });
  if (m == messages_.end()) {
    m = messages_.insert(messages_.end(),
                         Message{source, target, s.lane, {}, {}, 0, 0, false, false, false, false, {}});
  }
  if (sends) {
    m->sent = true;
    m->from = span;
    m->send = number;
    m->buffered = chance(buffered_percent_);
    if (m->buffered) {
      m->payload.assign(span.begin(), span.end());
      r.ops[number].done = true;
    }
  } else {
    m->received = true;
    m->into = span;
    m->receive = number;
  }
  if (m->sent && m->received && m->from.size() != m->into.size()) throw Wrong{"lengths differ"};
}

void World::deliver(Message& m) {
  if (!m.buffered) m.payload.assign(m.from.begin(), m.from.end());
  std::copy(m.payload.begin(), m.payload.end(), m.into.begin());
  m.delivered = true;
  ranks_[static_cast<std::size_t>(m.source)].ops[m.send].done = true;
  ranks_[static_cast<std::size_t>(m.target)].ops[m.receive].done = true;
}

void World::enter_team(std::int32_t rank) {
  ranks_[static_cast<std::size_t>(rank)].in_team = true;
  const auto step = [&](std::int32_t m) -> const Step& {
    const Rank& r = ranks_[static_cast<std::size_t>(m)];
    return r.program[r.pc].step;
  };
  const int kind = step(rank).lane;
  if (kind >= kTeamKinds) throw Wrong{"no team"};
  const std::vector<std::int32_t>& members = topology_.team(step(rank).team(), rank);
  // As the engine has them.
  if (members.size() < 2) throw Wrong{"a team of one"};
  if (step(rank).team() != TeamKind::node && topology_.domains(rank) < 2) throw Wrong{"no team of domains"};
  const auto inside = [&](std::int32_t m) {
    return ranks_[static_cast<std::size_t>(m)].in_team && step(m).lane == kind;
  };
  if (std::all_of(members.begin(), members.end(), inside)) run_team(members);
}

void World::gather_team(const std::vector<std::int32_t>& members) {
  const auto rank = [&](std::int32_t m) -> Rank& { return ranks_[static_cast<std::size_t>(m)]; };
  const Flat& first = rank(members.front()).program[rank(members.front()).pc];
  for (const std::int32_t m : members) {
    const Flat& mine = rank(m).program[rank(m).pc];
    if (mine.step.kind != first.step.kind || mine.chunk != first.chunk || mine.step.count != first.step.count)
      throw Wrong{"team verbs differ"};
    if (mine.step.count != members.size()) throw Wrong{"not a chunk for each member"};
    (void)place(rank(m), Slot::data);
  }
  for (std::size_t m = 0; m < members.size(); ++m) {
    const std::span<Number> given = place(rank(members[m]), Slot::data).subspan(2 * m, 2);
    for (const std::int32_t other : members) {
      if (other != members[m])
        std::ranges::copy(given, place(rank(other), Slot::data).subspan(2 * m).begin());
    }
  }
  for (const std::int32_t m : members) {
    rank(m).in_team = false;
    ++rank(m).pc;
  }
}

void World::run_team(const std::vector<std::int32_t>& members) {
  const auto rank = [&](std::int32_t m) -> Rank& { return ranks_[static_cast<std::size_t>(m)]; };
  const auto step = [&](std::int32_t m) -> const Step& { return rank(m).program[rank(m).pc].step; };
  const Step& first = step(members.front());
  if (first.kind == StepKind::team_allgather) return gather_team(members);
  const bool all = first.kind == StepKind::team_allreduce;
  if (!all && (first.peer < 0 || static_cast<std::size_t>(first.peer) >= members.size()))
    throw Wrong{"no member"};
  if (first.kind != StepKind::team_bcast && !heddle::folds(rank(members.front()).schedule->collective))
    throw Wrong{"reduces where nothing is"};
  const std::int32_t chosen = members[all ? 0 : static_cast<std::size_t>(first.peer)];
  std::vector<Number> value;
  for (const std::int32_t m : members) {
    if (step(m).kind != first.kind || (!all && step(m).peer != first.peer)) throw Wrong{"team verbs differ"};
    const bool reads = first.kind != StepKind::team_bcast || m == chosen;
    if (!reads) continue;
    const std::span<Number> src = place(rank(m), step(m).src);
    if (value.empty()) {
      value.assign(src.begin(), src.end());
    } else {
      if (value.size() != src.size()) throw Wrong{"team lengths differ"};
      for (std::size_t i = 0; i < src.size(); ++i)
        value[i] = op(value[i], src[i]);
    }
  }
  for (const std::int32_t m : members) {
    if (all || (m == chosen) == (first.kind == StepKind::team_reduce)) {
      if (step(m).dst == Slot::input) throw Wrong{"team writes input"};
      const std::span<Number> dst = place(rank(m), step(m).dst);
      if (value.size() != dst.size()) throw Wrong{"team lengths differ"};
      std::copy(value.begin(), value.end(), dst.begin());
    }
  }
  for (const std::int32_t m : members) {
    rank(m).in_team = false;
    ++rank(m).pc;
  }
}

bool World::deliver_one() {
  std::vector<Message*> choices;
  for (Message& m : messages_) {
    if (deliverable(m)) choices.push_back(&m);
  }
  if (choices.empty()) return false;
  deliver(*choices[random_() % choices.size()]);
  while (!messages_.empty() && messages_.front().delivered)
    messages_.pop_front();
  return true;
}

bool World::step_one() {
  std::vector<std::int32_t> choices;
  for (std::int32_t rank = 0; rank < topology_.size(); ++rank) {
    if (runnable(ranks_[static_cast<std::size_t>(rank)])) choices.push_back(rank);
  }
  if (choices.empty()) return false;
  std::size_t chosen = random_() % choices.size();
  if (strict_priority_) {
    const auto priority = [&](std::int32_t r) { return ranks_[static_cast<std::size_t>(r)].priority; };
    const auto best = std::max_element(choices.begin(), choices.end(), [&](std::int32_t a, std::int32_t b) {
      return priority(a) < priority(b);
    });
    chosen = static_cast<std::size_t>(best - choices.begin());
  }
  step(choices[chosen]);
  return true;
}

void World::run() {
  for (;;) {
    if (chance(deliver_percent_) && deliver_one()) continue;
    if (step_one() || deliver_one()) continue;
    break;
  }
  for (const Rank& r : ranks_) {
    if (r.pc < r.program.size()) throw Wrong{"deadlock"};
    if (r.retired != r.ops.size()) throw Wrong{"ends with operations open"};
  }
  if (!messages_.empty()) throw Wrong{"messages left over"};
}

void World::check() const {
  const Schedule& s = *ranks_.front().schedule;
  for (std::size_t i = 0; s.collective == Collective::allgather && i < count_; ++i) {
    for (const Rank& r : ranks_) {
      if (r.data[i] != ranks_[i / 2].original[i]) throw Wrong{"not what that rank has"};
    }
  }
  if (s.collective == Collective::allgather) return;
  if (s.collective == Collective::bcast) {
    for (const Rank& r : ranks_) {
      if (r.data != ranks_[static_cast<std::size_t>(s.root)].original) throw Wrong{"not the root's value"};
    }
    return;
  }
  for (std::size_t i = 0; i < count_; ++i) {
    Number expected = ranks_.front().original[i];
    for (std::size_t r = 1; r < ranks_.size(); ++r)
      expected = op(expected, ranks_[r].original[i]);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const Rank& r = ranks_[rank];
      if (!r.in_place && r.own_input != r.original) throw Wrong{"input changed"};
      if (s.collective == Collective::reduce && static_cast<std::int32_t>(rank) != s.root) continue;
      if (r.data[i].sum != expected.sum) throw Wrong{"wrong sum"};
      if (s.collective != Collective::reduce && r.data[i] != ranks_.front().data[i])
        throw Wrong{"bits differ between ranks"};
      if (s.in_order && r.data[i].matrix != expected.matrix) throw Wrong{"wrong order"};
    }
  }
}

}  // namespace

std::string run_on_numbers(const TopologyView& topology, const std::vector<Schedule>& schedules,
                           const Trial& trial) {
  try {
    World world(topology, schedules, trial);
    world.run();
    world.check();
  } catch (const Wrong& wrong) {
    return wrong.what;
  }
  return "";
}

std::vector<std::uint64_t> folds_of(const TopologyView& topology, const std::vector<Schedule>& schedules) {
  try {
    World world(topology, schedules, {});
    world.make_alike();
    world.run();
    return world.folds();
  } catch (const Wrong& wrong) {
    throw std::runtime_error(wrong.what);
  }
}

}  // namespace heddle::test
