#include "node_ranks.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace heddle::test {
namespace {

constexpr unsigned kLongest = 150;  // seconds that a test may take
constexpr int kStagedCalls = 12;    // more than it takes to agree

ShmTeamGeometry geometry_of(int size) {
  ShmTeamGeometry geometry;
  geometry.members = size;
  return geometry;
}

void largest_words(void* out, void* /*out2*/, const void* const* inputs, unsigned n_inputs,
                   std::size_t count) {
  auto* const to = static_cast<std::uint64_t*>(out);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t most = 0;
    for (unsigned k = 0; k < n_inputs; ++k)
      most = std::max(most, static_cast<const std::uint64_t*>(inputs[k])[i]);
    to[i] = most;
  }
}

// Two ranks at least; the plain loop is what a compiler makes vectors of.
void sum_floats(void* out, void* out2, const void* const* inputs, unsigned n_inputs, std::size_t count) {
  auto* const to = static_cast<float*>(out);
  const auto* const first = static_cast<const float*>(inputs[0]);
  const auto* const second = static_cast<const float*>(inputs[1]);
  for (std::size_t i = 0; i < count; ++i)
    to[i] = first[i] + second[i];
  for (unsigned k = 2; k < n_inputs; ++k) {
    const auto* const next = static_cast<const float*>(inputs[k]);
    for (std::size_t i = 0; i < count; ++i)
      to[i] += next[i];
  }
  if (out2 != nullptr) std::copy_n(to, count, static_cast<float*>(out2));
}

// What all ranks share, mapped before any of them is made.
class TeamMemory {
 public:
  explicit TeamMemory(int size) : bytes_(geometry_of(size).bytes()) {
    void* const at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) std::abort();
    memory_ = static_cast<std::byte*>(at);
  }
  TeamMemory(const TeamMemory&) = delete;
  TeamMemory& operator=(const TeamMemory&) = delete;
  ~TeamMemory() { munmap(memory_, bytes_); }
  std::byte* at() const { return memory_; }

 private:
  const std::size_t bytes_;
  std::byte* memory_ = nullptr;
};

// Forks `body`, which must not come back.
template <typename Body>
pid_t start(const Body& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  alarm(kLongest);  // others would wait for one that died
  const bool right = body();
  std::fflush(nullptr);
  _exit(right ? 0 : 1);
}

bool join(const std::vector<pid_t>& children) {
  bool right = true;
  for (const pid_t child : children) {
    int status = 0;
    right = waitpid(child, &status, 0) == child && status == 0 && right;
  }
  return right;
}

}  // namespace

NodeRank::NodeRank(const char* library, std::byte* memory, int rank, int size, std::size_t scratch)
    : driver_(library),
      rank_(rank),
      size_(size),
      team_(make_shm_team(memory, geometry_of(size), rank)),
      path_(*this, scratch, Log(LogLevel::info, rank)) {
  driver_.set_current(driver_.primary(0));
}

void NodeRank::run(TeamOp& op) {
  team_->start(op);
  while (!team_->poll(op))
    sched_yield();
}

Status NodeRank::largest(std::span<std::uint64_t> words) {
  if (before_meeting) before_meeting(words);
  TeamOp op;
  op.in = reinterpret_cast<const std::byte*>(words.data());
  op.out = reinterpret_cast<std::byte*>(words.data());
  op.count = words.size();
  op.element_bytes = sizeof(std::uint64_t);
  op.fold = &largest_words;
  run(op);
  return {};
}

Status NodeRank::staged_sum(const float* in, float* out, std::size_t count) {
  Result<gpu::Image> from = gpu_.present() ? gpu_.image(in, count * sizeof(float))
                                           : Result<gpu::Image>(Status(Code::internal, "there is no CUDA"));
  if (!from.ok()) return from.status();
  Result<gpu::Image> to = gpu_.image(out, count * sizeof(float));
  if (!to.ok()) return to.status();
  HEDDLE_TRY(from->load());
  ++calls_;
  TeamOp op;
  op.in = static_cast<const std::byte*>(from->host());
  op.out = static_cast<std::byte*>(to->host());
  op.count = count;
  op.element_bytes = sizeof(float);
  op.fold = &sum_floats;
  run(op);
  HEDDLE_TRY(path_.after_allreduce(gpu_, out, true));
  return to->store();
}

bool NodeRank::begin(float* buffer) {
  for (int i = 0; i < kStagedCalls; ++i) {
    if (path_.on()) return true;
    const Status status = staged_sum(buffer, buffer, 1);
    if (!status.ok()) std::printf("rank %d: a staged sum: %s\n", rank_, status.message().c_str());
    if (!status.ok()) return false;
  }
  std::printf("rank %d: the GPUs do not serve calls\n", rank_);
  return false;
}

bool on_processes(const char* library, int size, std::size_t scratch, const RankBody& body) {
  const TeamMemory memory(size);
  std::vector<pid_t> children;
  for (int r = 0; r < size; ++r) {
    children.push_back(start([&, r] {
      NodeRank rank(library, memory.at(), r, size, scratch);
      return body(rank);
    }));
  }
  return join(children);
}

bool on_threads(const char* library, int size, std::size_t scratch, const RankBody& body) {
  return join({start([&] {
    const TestDriver driver(library);  // one thread is the first to use it
    const TeamMemory memory(size);
    std::atomic<bool> right{true};
    std::vector<std::thread> threads;
    for (int r = 0; r < size; ++r) {
      threads.emplace_back([&, r] {
        NodeRank rank(library, memory.at(), r, size, scratch);
        if (!body(rank)) right = false;
      });
    }
    for (std::thread& thread : threads)
      thread.join();
    return right.load();
  })});
}

}  // namespace heddle::test
