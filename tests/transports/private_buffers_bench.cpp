// What an allreduce of float sums by two processes of one machine costs for each way to the other's data, by
// turns:
//   staged     through the team's slots: the buffers are private
//   cma        each process reads the other's whole input out of its memory (process_vm_readv), a piece at a
//              time
//   cma halves each reads and folds one half, then the other half of the result
//   reachable  the buffers lie in SharedHeaps: what moving private pages into shared memory would give at
//   most
// Run by hand; prints a Markdown table of medians in microseconds. docs/performance.md says what follows from
// it.
#include <sched.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "engine/fold_table.hpp"
#include "transports/shm/shared_memory.hpp"
#include "transports/shm/shm_team.hpp"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBlocks = 21;
constexpr std::size_t kPiece = std::size_t{64} << 10;
constexpr const char* kWays[] = {"staged", "cma", "cma halves", "reachable"};

struct alignas(128) Side {
  std::atomic<std::uint64_t> started;
  std::atomic<std::uint64_t> folded;
  std::atomic<std::uint64_t> done;
  pid_t pid;
  const std::byte* in;
  std::byte* out;
};

[[noreturn]] void give_up(const char* what) {
  std::perror(what);
  std::_Exit(1);
}

class Process {
 public:
  Process(int member, Side* sides, std::byte* memory, const ShmTeamGeometry& geometry)
      : me_(sides[member]),
        peer_(sides[1 - member]),
        member_(member),
        scratch_(kPiece),
        team_(make_shm_team(memory, geometry, member, &heap_)) {
    me_.pid = getpid();
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(static_cast<unsigned>(member), &cores);
    sched_setaffinity(0, sizeof cores, &cores);
  }

  // Microseconds of one of `calls` calls, each on fresh buffers.
  double block(int way, std::size_t bytes, int calls) {
    meet();
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i)
      call(way, bytes);
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / calls;
  }

  // Buffers for `bytes`: as many as fit into 64 MiB, 64 at most, of each kind.
  void prepare(std::size_t bytes) {
    for (std::byte* memory : reachable_)
      (void)heap_.release(memory);
    reachable_.clear();
    private_.clear();
    count_ = std::clamp<std::size_t>((std::size_t{64} << 20) / bytes, 2, 64);
    for (int kind = 0; kind < 2; ++kind) {
      private_.emplace_back(count_ * bytes);
      reachable_.push_back(static_cast<std::byte*>(heap_.allocate(count_ * bytes).value()));
      std::memset(reachable_.back(), 0, count_ * bytes);
    }
  }

  // The other process's number, once both have come.
  void meet() {
    me_.started.store(++meetings_, std::memory_order_release);
    await(peer_.started, meetings_);
  }

 private:
  static void await(const std::atomic<std::uint64_t>& counter, std::uint64_t value) {
    while (counter.load(std::memory_order_acquire) < value) {
    }
  }

  void read_peer(const std::byte* there, std::byte* here, std::size_t bytes) const {
    iovec local{here, bytes};
    iovec remote{const_cast<std::byte*>(there), bytes};
    if (process_vm_readv(peer_.pid, &local, 1, &remote, 1, 0) != static_cast<ssize_t>(bytes))
      give_up("process_vm_readv");
  }

  void call(int way, std::size_t bytes) {
    const std::size_t at = next_++ % count_ * bytes;
    const bool reachable = way == 3;
    const std::byte* in = (reachable ? reachable_[0] : private_[0].data()) + at;
    std::byte* out = (reachable ? reachable_[1] : private_[1].data()) + at;
    const FoldFn fold = folds_.of(DType::f32, Op::sum, bytes / 4);
    if (way == 0 || way == 3) {
      by_team(in, out, bytes, fold);
    } else {
      by_cma(in, out, bytes, fold, way == 2);
    }
  }

  void by_team(const std::byte* in, std::byte* out, std::size_t bytes, FoldFn fold) {
    TeamOp op;
    op.in = in;
    op.out = out;
    op.count = bytes / 4;
    op.element_bytes = 4;
    op.fold = fold;
    team_->start(op);
    while (!team_->poll(op)) {
    }
  }

  void by_cma(const std::byte* in, std::byte* out, std::size_t bytes, FoldFn fold, bool halves) {
    me_.in = in;
    me_.out = out;
    meet();
    const std::size_t half = bytes / 2;
    const std::size_t begin = halves && member_ == 1 ? half : 0;
    const std::size_t end = halves && member_ == 0 ? half : bytes;
    for (std::size_t i = begin; i < end; i += kPiece) {
      const std::size_t n = std::min(kPiece, end - i);
      read_peer(peer_.in + i, scratch_.data(), n);
      const void* inputs[] = {member_ == 0 ? in + i : scratch_.data(),
                              member_ == 0 ? scratch_.data() : in + i};
      fold(out + i, nullptr, inputs, 2, n / 4);
    }
    me_.folded.store(meetings_, std::memory_order_release);
    if (halves) {
      await(peer_.folded, meetings_);
      const std::size_t theirs = member_ == 0 ? half : 0;
      read_peer(peer_.out + theirs, out + theirs, half);
    }
    me_.done.store(meetings_, std::memory_order_release);
    await(peer_.done, meetings_);
  }

  Side& me_;
  Side& peer_;
  int member_;
  SharedHeap heap_;
  FoldTable folds_;
  std::vector<std::byte> scratch_;
  std::unique_ptr<ShmTeam> team_;
  std::vector<std::vector<std::byte>> private_;
  std::vector<std::byte*> reachable_;
  std::size_t count_ = 2;
  std::size_t next_ = 0;
  std::uint64_t meetings_ = 0;
};

double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + kBlocks / 2, times.end());
  return times[kBlocks / 2];
}

void measure(Process& process, bool speaks) {
  if (speaks) std::printf("| bytes | staged | cma | cma halves | reachable |\n|---:|---:|---:|---:|---:|\n");
  for (std::size_t bytes = std::size_t{32} << 10; bytes <= std::size_t{16} << 20; bytes *= 2) {
    process.prepare(bytes);
    const int calls = static_cast<int>(std::max<std::size_t>(2, (std::size_t{8} << 20) / bytes));
    std::vector<std::vector<double>> times(std::size(kWays));
    for (int b = -1; b < kBlocks; ++b) {
      for (std::size_t way = 0; way < std::size(kWays); ++way) {
        const double time = process.block(static_cast<int>(way), bytes, calls);
        if (b >= 0) times[way].push_back(time);
      }
    }
    if (!speaks) continue;
    std::printf("| %zu |", bytes);
    for (const std::vector<double>& of_way : times)
      std::printf(" %.1f |", median(of_way));
    std::printf("\n");
    std::fflush(stdout);
  }
}

int run() {
  const ShmTeamGeometry geometry{2, kPiece};
  SharedMemory shared =
      SharedMemory::create(sizeof(Side) * 2 + 4096 + geometry.bytes(), SharedMemory::Backing::memfd).value();
  auto* sides = reinterpret_cast<Side*>(shared.data());
  std::byte* memory = shared.data() + 4096;
  const pid_t child = fork();
  if (child < 0) give_up("fork");
  {
    Process process(child == 0 ? 1 : 0, sides, memory, geometry);
    process.meet();
    measure(process, child != 0);
    process.meet();
  }
  if (child == 0) std::_Exit(0);
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

}  // namespace
}  // namespace heddle

int main() {
  return heddle::run();
}
