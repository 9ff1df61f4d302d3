// Which work of streams in one context holds up other streams while one of them waits for a word in the
// host's memory. Of each kind of turn below so many streams are given many, and a thread of the host lets all
// of them go on once each has come as far. As a plain program: stream_waits LIBCUDA [--short] [--must-end].
// It prints a table; that streams stop is what is to be found out, and wrong only where they must not.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "cuda_streams.hpp"
#include "gpu/host_words.hpp"

namespace heddle::test {
namespace {

using gpu::wait_operation;
using gpu::write_operation;

enum class Step { copy_out, copy_on, copy_in, write, wait, write_and_wait };

struct Turn {
  const char* name;
  std::vector<Step> steps;
};
const std::vector<Turn> kTurns = {
    {"write, wait", {Step::write, Step::wait}},
    {"write and wait in one", {Step::write_and_wait}},
    {"to the host, write, wait", {Step::copy_out, Step::write, Step::wait}},
    {"write, wait, to the device", {Step::write, Step::wait, Step::copy_in}},
    {"on the device, write, wait, on the device", {Step::copy_on, Step::write, Step::wait, Step::copy_on}},
    {"to the host, write, wait, to the device", {Step::copy_out, Step::write, Step::wait, Step::copy_in}},
    {"the same, with both copies twice",
     {Step::copy_out, Step::copy_out, Step::write, Step::wait, Step::copy_in, Step::copy_in}},
};

struct Shape {
  int streams;
  std::size_t bytes;
  bool threads;  // one for each stream gives it its work
  int turns;     // of many the driver takes some only when others are done
};

struct Words {
  alignas(64) std::atomic<std::uint32_t> come{0};
  alignas(64) std::atomic<std::uint32_t> go_on{0};
};

// A stream with what it copies.
class Line {
 public:
  Line(const TestDriver& driver, std::size_t bytes)
      : driver_(driver),
        bytes_(bytes),
        stream_(driver, 0),
        near_(driver, Memory::device, bytes),
        far_(driver, Memory::device, bytes),
        host_(driver, Memory::pinned, bytes) {}

  void give(const Turn& turn, std::uint32_t number, CUdeviceptr come, CUdeviceptr go_on) const {
    for (const Step step : turn.steps) {
      CUstreamBatchMemOpParams both[] = {write_operation(come, number), wait_operation(go_on, number)};
      switch (step) {
        case Step::copy_out:
          driver_.call<PFN_cuMemcpyDtoHAsync_v3020>("cuMemcpyDtoHAsync_v2", host_.data(), address(near_),
                                                    bytes_, stream_.get());
          break;
        case Step::copy_on:
          stream_.copy(far_.data(), near_.data(), bytes_);
          break;
        case Step::copy_in:
          driver_.call<PFN_cuMemcpyHtoDAsync_v3020>("cuMemcpyHtoDAsync_v2", address(far_),
                                                    static_cast<const void*>(host_.data()), bytes_,
                                                    stream_.get());
          break;
        case Step::write:
          operate(1, both);
          break;
        case Step::wait:
          operate(1, both + 1);
          break;
        case Step::write_and_wait:
          operate(2, both);
          break;
      }
    }
  }
  void wait() const { stream_.wait(); }

 private:
  static CUdeviceptr address(const TestMemory& memory) {
    return reinterpret_cast<CUdeviceptr>(memory.data());
  }
  void operate(unsigned count, CUstreamBatchMemOpParams* operations) const {
    driver_.call<PFN_cuStreamBatchMemOp_v11070>("cuStreamBatchMemOp_v2", stream_.get(), count, operations,
                                                0U);
  }

  const TestDriver& driver_;
  const std::size_t bytes_;
  const TestStream stream_;
  const TestMemory near_;
  const TestMemory far_;
  const TestMemory host_;
};

// What came of it, in the memory that parent and child share.
struct Outcome {
  int served = 0;   // turns
  int missing = 0;  // streams that have not come to the next one
  bool begun = false;
  bool done = false;
  double seconds = 0;
};

class Run {
 public:
  Run(const TestDriver& driver, const Shape& shape) : driver_(driver), shape_(shape) {
    driver.set_current(driver.primary(0));
    for (int s = 0; s < shape.streams; ++s)
      lines_.push_back(std::make_unique<Line>(driver, shape.bytes));
    words_.reset(static_cast<Words*>(std::aligned_alloc(4096, bytes_of_words())));
    std::memset(static_cast<void*>(words_.get()), 0, bytes_of_words());
    driver.call<PFN_cuMemHostRegister_v6050>("cuMemHostRegister_v2", static_cast<void*>(words_.get()),
                                             bytes_of_words(), unsigned{CU_MEMHOSTREGISTER_DEVICEMAP});
    driver.call<PFN_cuMemHostGetDevicePointer_v3020>("cuMemHostGetDevicePointer_v2", &at_,
                                                     static_cast<void*>(words_.get()), 0U);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() {
    driver_.call<PFN_cuMemHostUnregister_v4000>("cuMemHostUnregister", static_cast<void*>(words_.get()));
  }
  // Where streams stop nothing that waits for the GPU ends, so the process has to: this returns where all is
  // done.
  void serve(const Turn& turn, Outcome& outcome) {
    const auto begun = Clock::now();
    std::vector<std::thread> givers;
    if (shape_.threads) {
      for (int s = 0; s < shape_.streams; ++s)
        givers.emplace_back([this, s, &turn] { give(s, turn); });
    } else {
      givers.emplace_back([this, &turn] { give_in_turn(turn); });
    }
    for (int number = 1; number <= shape_.turns; ++number) {
      if (!all_come(number, outcome)) _exit(0);
      for (int s = 0; s < shape_.streams; ++s)
        word(s).go_on.store(static_cast<std::uint32_t>(number));
      outcome.served = number;
    }
    for (std::thread& giver : givers)
      giver.join();
    outcome.seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    outcome.done = true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPatience{1};
  struct Free {
    void operator()(Words* words) const { std::free(words); }
  };

  std::size_t bytes_of_words() const {
    return (static_cast<std::size_t>(shape_.streams) * sizeof(Words) + 4095) / 4096 * 4096;
  }
  Words& word(int s) const { return words_.get()[s]; }
  CUdeviceptr place(const std::atomic<std::uint32_t>& one) const {
    return at_ + static_cast<CUdeviceptr>(reinterpret_cast<const std::byte*>(&one) -
                                          reinterpret_cast<const std::byte*>(words_.get()));
  }
  void give_one(int s, const Turn& turn, int number) const {
    lines_[static_cast<std::size_t>(s)]->give(turn, static_cast<std::uint32_t>(number), place(word(s).come),
                                              place(word(s).go_on));
  }
  void wait_for(int s) const {
    driver_.set_current(driver_.primary(0));
    lines_[static_cast<std::size_t>(s)]->wait();
  }
  void give(int s, const Turn& turn) const {
    driver_.set_current(driver_.primary(0));
    for (int number = 1; number <= shape_.turns; ++number)
      give_one(s, turn, number);
    wait_for(s);
  }
  // In the double streams move while they are waited for.
  void give_in_turn(const Turn& turn) const {
    driver_.set_current(driver_.primary(0));
    for (int number = 1; number <= shape_.turns; ++number) {
      for (int s = 0; s < shape_.streams; ++s)
        give_one(s, turn, number);
    }
    std::vector<std::thread> waiters;
    for (int s = 0; s < shape_.streams; ++s)
      waiters.emplace_back([this, s] { wait_for(s); });
    for (std::thread& waiter : waiters)
      waiter.join();
  }
  bool all_come(int number, Outcome& outcome) const {
    const auto end = Clock::now() + kPatience;
    do {
      outcome.missing = 0;
      for (int s = 0; s < shape_.streams; ++s)
        outcome.missing += word(s).come.load() < static_cast<std::uint32_t>(number) ? 1 : 0;
      if (outcome.missing == 0) return true;
    } while (Clock::now() < end);
    return false;
  }

  const TestDriver& driver_;
  const Shape shape_;
  std::vector<std::unique_ptr<Line>> lines_;
  std::unique_ptr<Words, Free> words_;
  CUdeviceptr at_ = 0;
};

using Plan = std::vector<Shape>;

// All of the outcomes of one kind of turn, but for what comes behind kEnough that stopped. A child serves one
// shape after the other until streams stop; the next one goes on behind that.
bool look_at(const char* libcuda, const Turn& turn, const Plan& plan, Outcome* outcomes) {
  constexpr int kEnough = 4;
  std::size_t next = 0;
  for (int stopped = 0; next < plan.size() && stopped < kEnough; ++stopped) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      const TestDriver driver(libcuda);
      for (std::size_t i = next; i < plan.size(); ++i) {
        outcomes[i].begun = true;
        Run run(driver, plan[i]);
        run.serve(turn, outcomes[i]);
      }
      _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      std::printf("%s: the child has ended with status 0x%x\n", turn.name, static_cast<unsigned>(status));
      return false;
    }
    while (next < plan.size() && outcomes[next].begun)
      ++next;
  }
  return true;
}

void show(const Turn& turn, const Plan& plan, const Outcome* outcomes) {
  std::printf("%s\n", turn.name);
  std::size_t left = 0;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const Shape& shape = plan[i];
    const Outcome& outcome = outcomes[i];
    if (!outcome.begun) {
      ++left;
      continue;
    }
    std::printf("  %d streams, %7zu bytes, %4d turns, %s: ", shape.streams, shape.bytes, shape.turns,
                shape.threads ? "a thread each" : "one thread");
    if (outcome.done) {
      std::printf("%.1f us a turn\n", outcome.seconds * 1e6 / shape.turns);
    } else {
      std::printf("STOPPED after %d turns, to which %d streams did not come\n", outcome.served,
                  outcome.missing);
    }
  }
  if (left != 0) std::printf("  %zu more were not looked at\n", left);
}

Plan plan_of(bool brief) {
  if (brief) return {{2, 4096, true, 20}, {3, 4096, false, 20}};
  Plan plan;
  for (const int streams : {2, 3, 4, 8}) {
    for (const int turns : {100, 1000}) {
      for (const std::size_t bytes : {std::size_t{4096}, std::size_t{1} << 20}) {
        for (const bool threads : {false, true})
          plan.push_back({streams, bytes, threads, turns});
      }
    }
  }
  return plan;
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) {
  using namespace heddle::test;
  bool brief = false;
  bool must_end = false;
  for (int i = 2; i < argc; ++i) {
    brief = brief || std::strcmp(argv[i], "--short") == 0;
    must_end = must_end || std::strcmp(argv[i], "--must-end") == 0;
  }
  if (argc < 2) {
    std::fprintf(stderr, "usage: stream_waits LIBCUDA [--short] [--must-end]\n");
    return 2;
  }
  const Plan plan = plan_of(brief);
  // Shared with the children.
  const std::size_t bytes = plan.size() * sizeof(Outcome);
  auto* const outcomes =
      static_cast<Outcome*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (outcomes == MAP_FAILED) return 1;
  for (const Turn& turn : kTurns) {
    std::fill_n(outcomes, plan.size(), Outcome{});
    const bool right = look_at(argv[1], turn, plan, outcomes);
    show(turn, plan, outcomes);
    const auto ended = [](const Outcome& outcome) { return outcome.done; };
    if (!right || (must_end && !std::all_of(outcomes, outcomes + plan.size(), ended))) return 1;
  }
  return 0;
}
