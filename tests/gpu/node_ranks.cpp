#include "node_ranks.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "device/across.hpp"

namespace heddle::test {
namespace {

constexpr unsigned kLongest = 150;             // seconds that a test may take
constexpr std::chrono::seconds kPatience{15};  // with ranks beside one that has failed
constexpr int kStagedCalls = 12;               // more than it takes to agree
constexpr const char* kQueues = "32";          // of a GPU for a process, at most
constexpr std::size_t kMostRanks = 16;

// Of this process's ranks, for a signal handler.
std::atomic<const char*> places[kMostRanks];

void tell_places(int /*signal*/) {
  const auto tell = [](const char* text) {
    static_cast<void>(!write(STDERR_FILENO, text, std::strlen(text)));
  };
  tell("ended by an alarm; ranks here were at:");
  for (const std::atomic<const char*>& place : places) {
    if (place.load() == nullptr) continue;
    tell(" [");
    tell(place.load());
    tell("]");
  }
  tell("\n");
  _exit(1);
}

ShmTeamGeometry geometry_of(int size) {
  ShmTeamGeometry geometry;
  geometry.members = size;
  return geometry;
}

void largest_words(void* out, void* out2, const void* const* inputs, unsigned n_inputs, std::size_t count) {
  auto* const to = static_cast<std::uint64_t*>(out);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t most = 0;
    for (unsigned k = 0; k < n_inputs; ++k)
      most = std::max(most, static_cast<const std::uint64_t*>(inputs[k])[i]);
    to[i] = most;
  }
  if (out2 != nullptr) std::copy_n(to, count, static_cast<std::uint64_t*>(out2));
}

// The plain loop is what a compiler makes vectors of. `out` may be any of the inputs.
void sum_floats(void* out, void* out2, const void* const* inputs, unsigned n_inputs, std::size_t count) {
  auto* const to = static_cast<float*>(out);
  const auto input = [&](unsigned k) { return static_cast<const float*>(inputs[k]); };
  if (n_inputs == 2) {
    const float* const first = input(0);
    const float* const second = input(1);
    for (std::size_t i = 0; i < count; ++i)
      to[i] = first[i] + second[i];
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      float sum = input(0)[i];
      for (unsigned k = 1; k < n_inputs; ++k)
        sum += input(k)[i];
      to[i] = sum;
    }
  }
  if (out2 != nullptr) std::copy_n(to, count, static_cast<float*>(out2));
}

void run(Team& team, TeamOp& op) {
  team.start(op);
  while (!team.poll(op))
    sched_yield();
}

TeamOp sum_of(const void* in, void* out, std::size_t count) {
  TeamOp op;
  op.in = static_cast<const std::byte*>(in);
  op.out = static_cast<std::byte*>(out);
  op.count = count;
  op.element_bytes = sizeof(float);
  op.fold = &sum_floats;
  return op;
}

TeamOp bcast_of(void* buffer, std::size_t bytes, int root) {
  TeamOp op;
  op.verb = TeamVerb::bcast;
  op.in = static_cast<const std::byte*>(buffer);
  op.out = static_cast<std::byte*>(buffer);
  op.count = bytes;
  op.root = root;
  return op;
}

TeamOp largest_of(std::span<std::uint64_t> words) {
  TeamOp op;
  op.in = reinterpret_cast<const std::byte*>(words.data());
  op.out = reinterpret_cast<std::byte*>(words.data());
  op.count = words.size();
  op.element_bytes = sizeof(std::uint64_t);
  op.fold = &largest_words;
  return op;
}

// Among the first ranks of two nodes, the second of which has one rank.
class TeamAcross final : public Across {
 public:
  // `team`: of the two; null on all others.
  TeamAcross(std::unique_ptr<Team> team, int rank, int size)
      : team_(std::move(team)), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int lanes() const override { return 1; }
  Status largest(std::span<std::uint64_t> /*words*/) override {
    return Status(Code::unsupported, "there is no meeting of all ranks here");
  }
  Status start_sum(std::size_t /*slot*/, void* data, std::size_t count, DType type, Op op,
                   LocalWork* /*local*/) override {
    if (type != DType::f32 || op != Op::sum)
      return Status(Code::unsupported, "sums of floats are all there is here");
    if (team_ == nullptr) return {};
    TeamOp sum = sum_of(data, data, count);
    run(*team_, sum);
    return {};
  }
  Status start_bcast(std::size_t /*slot*/, void* data, std::size_t bytes, int root,
                     LocalWork* /*local*/) override {
    if (team_ == nullptr) return {};
    TeamOp op = bcast_of(data, bytes, root == size_ - 1 ? 1 : 0);
    run(*team_, op);
    return {};
  }
  Status finish(std::size_t /*slot*/) override { return {}; }
  Status progress() override { return {}; }
  Transport* network() override { return nullptr; }
  Result<std::size_t> scratch_for(std::size_t /*bytes*/) override { return std::size_t{0}; }

 private:
  const std::unique_ptr<Team> team_;
  const int rank_;
  const int size_;
};

// The ranks of one of those nodes.
class TeamMeeting final : public Meeting {
 public:
  // `team`: null where a rank is alone.
  TeamMeeting(std::unique_ptr<Team> team, int first) : team_(std::move(team)), first_(first) {}
  int rank() const override { return team_ ? team_->rank() : 0; }
  int size() const override { return team_ ? team_->size() : 1; }
  int number_of(int rank) const override { return first_ + rank; }
  Status largest(std::span<std::uint64_t> words) override {
    TeamOp op = largest_of(words);
    if (team_) run(*team_, op);
    return {};
  }
  void tell(std::uint64_t word) override {
    if (team_) team_->tell(word);
  }
  std::uint64_t told(int rank) const override { return team_->told(rank); }
  bool is_gone(int /*rank*/) const override { return false; }
  std::uint64_t calls() const override { return 0; }
  bool bcast_met() const override { return false; }

 private:
  const std::unique_ptr<Team> team_;
  const int first_;
};

class TeamCollectives final : public HostCollectives {
 public:
  TeamCollectives(std::unique_ptr<Team> team, std::unique_ptr<Across> across)
      : team_(std::move(team)), across_(std::move(across)) {}
  int rank() const override { return team_->rank(); }
  int size() const override { return team_->size(); }
  Status allreduce(const void* in, void* out, std::size_t count, DType type, Op op) override {
    if (type == DType::f32 && op == Op::sum) {
      TeamOp sum = sum_of(in, out, count);
      run(*team_, sum);
      return {};
    }
    if (type != DType::u64 || op != Op::max || in != out)
      return Status(Code::unsupported, "sums of floats and largest words are all there is here");
    TeamOp largest = largest_of({static_cast<std::uint64_t*>(out), count});
    run(*team_, largest);
    return {};
  }
  Status bcast(void* buffer, std::size_t bytes, int root) override {
    TeamOp op = bcast_of(buffer, bytes, root);
    run(*team_, op);
    return {};
  }
  Across* across() override { return across_.get(); }

 private:
  const std::unique_ptr<Team> team_;
  const std::unique_ptr<Across> across_;
};

constexpr std::size_t kTeams = 5;  // a rank's own, those of its collectives(), across, and of made_up_node()

std::byte* team_at(std::byte* memory, int size, std::size_t which) {
  return memory + which * geometry_of(size).bytes();
}

// What all ranks share, mapped before any of them is made.
class TeamMemory {
 public:
  explicit TeamMemory(int size) : bytes_(kTeams * geometry_of(size).bytes()) {
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
  std::signal(SIGALRM, tell_places);
  alarm(kLongest);  // others would wait for one that died
  const bool right = body();
  std::fflush(nullptr);
  _exit(right ? 0 : 1);
}

// One that fails may have left the others waiting for it, who are ended after a while.
bool join(std::vector<pid_t> children) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point end = Clock::time_point::max();
  while (!children.empty()) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, WNOHANG);
    if (ended > 0) {
      std::erase(children, ended);
      if (status != 0) end = std::min(end, Clock::now() + kPatience);
      continue;
    }
    if (Clock::now() > end) {
      for (const pid_t child : children)
        kill(child, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return end == Clock::time_point::max();
}

}  // namespace

NodeRank::NodeRank(const char* library, std::byte* memory, int rank, int size, const DeviceLimits& limits)
    : driver_(library),
      memory_(memory),
      rank_(rank),
      size_(size),
      team_(make_shm_team(memory, geometry_of(size), rank)),
      path_(*this, limits, Log(LogLevel::info, rank)) {
  driver_.set_current(driver_.primary(0));
}

Status NodeRank::largest(std::span<std::uint64_t> words) {
  if (before_meeting) before_meeting(words);
  TeamOp op = largest_of(words);
  run(*team_, op);
  return {};
}

std::unique_ptr<HostCollectives> NodeRank::collectives(int which) {
  std::unique_ptr<Team> team =
      make_shm_team(team_at(memory_, size_, static_cast<std::size_t>(which) + 1), geometry_of(size_), rank_);
  std::unique_ptr<Across> across;
  if (which == 1) {
    const bool alone = rank_ == size_ - 1;
    std::unique_ptr<Team> firsts;
    if (rank_ == 0 || alone)
      firsts = make_shm_team(team_at(memory_, size_, 3), geometry_of(2), alone ? 1 : 0);
    across = std::make_unique<TeamAcross>(std::move(firsts), rank_, size_);
  }
  return std::make_unique<TeamCollectives>(std::move(team), std::move(across));
}

std::unique_ptr<Meeting> NodeRank::made_up_node() {
  if (rank_ == size_ - 1) return std::make_unique<TeamMeeting>(nullptr, rank_);
  return std::make_unique<TeamMeeting>(
      make_shm_team(team_at(memory_, size_, 4), geometry_of(size_ - 1), rank_), 0);
}

Status NodeRank::staged_sum(const float* in, float* out, std::size_t count) {
  Result<gpu::Image> from = gpu_.present() ? gpu_.image(in, count * sizeof(float))
                                           : Result<gpu::Image>(Status(Code::internal, "there is no CUDA"));
  if (!from.ok()) return from.status();
  Result<gpu::Image> to = gpu_.image(out, count * sizeof(float));
  if (!to.ok()) return to.status();
  HEDDLE_TRY(from->load());
  ++calls_;
  TeamOp op = sum_of(from->host(), to->host(), count);
  run(*team_, op);
  HEDDLE_TRY(path_.after_sum(gpu_, out, true));
  return to->store();
}

void NodeRank::is_at(const char* where) const {
  places[static_cast<std::size_t>(rank_)] = where;
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
  return on_processes(library, size, DeviceLimits{scratch}, body);
}

bool on_processes(const char* library, int size, const DeviceLimits& limits, const RankBody& body) {
  const TeamMemory memory(size);
  std::vector<pid_t> children;
  for (int r = 0; r < size; ++r) {
    children.push_back(start([&, r] {
      NodeRank rank(library, memory.at(), r, size, limits);
      return body(rank);
    }));
  }
  return join(children);
}

// More streams than the GPU has queues share them, 8 if nothing is said. Then one rank's stream may wait in
// front of another's that it waits for, where not CUDA's events but words in memory are what they wait by: in
// graphs, and by way of the host.
bool on_threads(const char* library, int size, std::size_t scratch, const RankBody& body) {
  return join({start([&] {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", kQueues, 1);
    const TestDriver driver(library);  // one thread is the first to use it
    const TeamMemory memory(size);
    std::atomic<bool> right{true};
    std::vector<std::thread> threads;
    for (int r = 0; r < size; ++r) {
      threads.emplace_back([&, r] {
        NodeRank rank(library, memory.at(), r, size,
                      DeviceLimits{.scratch = scratch, .links = {.shared_context = true}});
        if (body(rank)) return;
        right = false;
        alarm(static_cast<unsigned>(kPatience.count()));
      });
    }
    for (std::thread& thread : threads)
      thread.join();
    return right.load();
  })});
}

bool tries_threads() {
  const char* const value = std::getenv("HEDDLE_SHARED_CONTEXT");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

int run_check(int argc, char** argv, int (*check)(const char* library, bool brief)) {
  const bool brief = argc == 3 && std::strcmp(argv[2], "--short") == 0;
  if (argc == 2 || brief) return check(argv[1], brief);
  std::fprintf(stderr, "usage: %s LIBCUDA [--short]\n", argv[0]);
  return 2;
}

}  // namespace heddle::test
