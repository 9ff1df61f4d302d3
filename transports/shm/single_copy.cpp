#include "transports/shm/single_copy.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/random_number.hpp"

namespace heddle {

using namespace team_layout;

// Nothing here says what is there: the kernel does.
bool read_memory(std::int64_t pid, std::uint64_t place, std::byte* to, std::size_t bytes) {
  while (bytes > 0) {
    iovec here{to, bytes};
    iovec there{reinterpret_cast<void*>(place), bytes};
    const ssize_t got = process_vm_readv(static_cast<pid_t>(pid), &here, 1, &there, 1, 0);
    if (got <= 0) return false;
    to += got;
    place += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

SingleCopy::SingleCopy(std::byte* memory, std::size_t stride, int members, int member)
    : rank_(static_cast<std::size_t>(member)), number_(random_number()) {
  for (std::size_t m = 0; m < static_cast<std::size_t>(members); ++m)
    boards_.push_back(reinterpret_cast<Board*>(memory + m * stride));
  board(rank_).identity = {getpid(), reinterpret_cast<std::uint64_t>(&number_), number_};
}

bool SingleCopy::reads_all() const {
  return std::all_of(boards_.begin(), boards_.end(), [this](const Board* each) {
    const Identity& identity = each->identity;
    std::uint64_t number = 0;
    return each == boards_[rank_] ||
           (read_memory(identity.pid, identity.place, reinterpret_cast<std::byte*>(&number), sizeof number) &&
            number == identity.number);
  });
}

// ---- An operation

// Nobody still reads what was lent before: such a bcast ends on its root when all have answered.
void SingleCopy::start(const TeamOp& op) {
  way_ = Way::undecided;
  if (static_cast<int>(rank_) != op.root) return;
  Lent& mine = board(rank_).lent;
  // In a child of this process the buffer is not where the others look.
  const bool lends = holds_back_ == 0 && getpid() == board(rank_).identity.pid;
  if (lends) {
    mine.place = reinterpret_cast<std::uint64_t>(op.in);
  } else {
    holds_back_ -= holds_back_ > 0 ? 1 : 0;
    way_ = Way::staged;
  }
  mine.offer.store(2 * op.operation + (lends ? 1 : 0), std::memory_order_release);
}

SingleCopy::Way SingleCopy::lend(const TeamOp& op) {
  if (way_ != Way::undecided) return way_;
  bool all = true;
  for (std::size_t m = 0; m < boards_.size(); ++m) {
    if (m == rank_) continue;
    const std::uint64_t answer = board(m).taken.value.load(std::memory_order_acquire);
    if (answer < 2 * op.operation) return Way::undecided;
    all = all && answer != 2 * op.operation;
  }
  constexpr std::uint64_t kMost = std::uint64_t{1} << 16;
  refused_ = all ? 0 : std::clamp<std::uint64_t>(2 * refused_, 16, kMost);
  holds_back_ = refused_;
  return way_ = all ? Way::done : Way::staged;
}

SingleCopy::Way SingleCopy::take(const TeamOp& op) {
  if (way_ != Way::undecided) return way_;
  const Board& root = board(static_cast<std::size_t>(op.root));
  const std::uint64_t offer = root.lent.offer.load(std::memory_order_acquire);
  if (offer < 2 * op.operation) return Way::undecided;
  // A root that is further on has not waited for an answer.
  if (offer != 2 * op.operation + 1) return way_ = Way::staged;
  const bool read = read_memory(root.identity.pid, root.lent.place, op.out, op.count * op.element_bytes) &&
                    // Or its root has failed, and something else may be there by now. In slots nothing comes
                    // either: the wait finds that out.
                    !has_withdrawn(root);
  board(rank_).taken.value.store(2 * op.operation + (read ? 1 : 0), std::memory_order_release);
  return way_ = read ? Way::done : Way::staged;
}

// ---- Whether it pays

namespace {

using Steady = std::chrono::steady_clock;

constexpr std::size_t kSizes[] = {std::size_t{8} << 10, std::size_t{16} << 10, std::size_t{32} << 10};
constexpr int kTurns = 8;                               // the first of which does not count
constexpr std::size_t kTimed = std::size_t{128} << 10;  // bytes that are timed together
constexpr std::size_t kPool = std::size_t{2} << 20;     // the buffers
constexpr double kWorthwhile = 0.95;                    // of the time through slots

struct Measurement {
  Measurement(const SingleCopyTrial& what, int how_many) : trial(what), members(how_many), pool(kPool) {}

  Result<double> time(std::size_t bytes, bool once);
  Result<double> ratio(std::size_t bytes);
  bool over() const { return spent > std::chrono::duration<double>(trial.budget).count(); }

  const SingleCopyTrial& trial;
  int members;
  std::vector<std::byte> pool;
  std::size_t next = 0;
  double spent = 0;  // seconds that were timed, the same on all members
};

// Of some bcasts in a row, on the slowest member.
Result<double> Measurement::time(std::size_t bytes, bool once) {
  trial.use(once);
  const int bcasts = static_cast<int>(kTimed / bytes);
  Steady::time_point start;
  // Members are the root in turn. One bcast more, for coming together.
  for (int i = -1; i < bcasts; ++i) {
    if (i == 0) start = Steady::now();
    if (next + bytes > pool.size()) next = 0;
    TeamOp op;
    op.verb = TeamVerb::bcast;
    op.in = op.out = pool.data() + next;
    op.count = bytes;
    op.root = (i + members) % members;
    HEDDLE_TRY(trial.run(op));
    next += bytes;
  }
  double seconds = std::chrono::duration<double>(Steady::now() - start).count();
  HEDDLE_TRY(trial.slowest(seconds));
  spent += seconds;
  return seconds;
}

// Of the times, once copied over through slots; 1 where there is no time left to tell.
Result<double> Measurement::ratio(std::size_t bytes) {
  std::array<double, kTurns - 1> times[2];
  for (std::size_t turn = 0; turn < kTurns; ++turn) {
    for (const bool once : {false, true}) {
      const Result<double> seconds = time(bytes, once);
      if (!seconds.ok()) return seconds.status();
      if (over()) return 1.0;
      if (turn > 0) times[once ? 1 : 0][turn - 1] = seconds.value();
    }
  }
  for (auto& each : times)
    std::sort(each.begin(), each.end());
  return times[1][times[1].size() / 2] / times[0][times[0].size() / 2];
}

}  // namespace

Result<bool> measure_single_copy(const SingleCopyTrial& trial, int members) {
  Measurement measurement(trial, members);
  double product = 1;
  for (const std::size_t bytes : kSizes) {
    const Result<double> here = measurement.ratio(bytes);
    if (!here.ok()) return here.status();
    product *= here.value();
    if (measurement.over()) return false;
  }
  return std::cbrt(product) < kWorthwhile;
}

}  // namespace heddle
