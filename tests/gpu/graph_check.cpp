// Allreduces and bcasts in CUDA graphs among ranks that are processes, and where HEDDLE_SHARED_CONTEXT=1
// threads, on one GPU; as a plain program: graph_check LIBCUDA [--short]. With
// --mib N [--json FILE] it measures instead how long a sum of 8 B, and one of N MiB, takes in a graph of
// twenty, beside twenty calls on a stream; it adds to a file of fold_bandwidth's. What a stream waits for
// nothing on the host can time out: ranks that hang are ended by an alarm.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "cuda_streams.hpp"
#include "json_file.hpp"
#include "node_ranks.hpp"

namespace heddle::test {
namespace {

constexpr std::size_t kScratch = std::size_t{1} << 20;
constexpr unsigned kLongest = 60;  // seconds for a group of ranks
constexpr int kInputs = 3;         // that take turns

float given(int rank, int launch) {
  return static_cast<float>((rank + 1) * (launch % kInputs + 1));
}

// One rank's buffers, for a graph that does a sum and a bcast of them, each with the input made before and
// the result taken after it.
class Program {
 public:
  Program(NodeRank& rank, std::size_t count, int launches)
      : rank_(rank),
        bytes_(count * sizeof(float)),
        launches_(launches),
        stream_(rank.driver(), 0),
        beside_(rank.driver(), 0),
        inputs_(rank.driver(), Memory::device, kInputs * bytes_),
        made_(rank.driver(), Memory::device, bytes_),
        in_(rank.driver(), Memory::device, bytes_),
        out_(rank.driver(), Memory::device, bytes_),
        taken_(rank.driver(), Memory::device, 2 * bytes_),
        beside_in_(rank.driver(), Memory::device, bytes_),
        beside_out_(rank.driver(), Memory::device, bytes_),
        outputs_(rank.driver(), Memory::device, 2 * bytes_ * static_cast<std::size_t>(launches)),
        graph_(rank.driver(), stream_) {}

  Status capture() {
    std::vector<float> values(count());
    for (int k = 0; k < kInputs; ++k) {
      std::fill(values.begin(), values.end(), given(rank_.rank(), k));
      inputs_.put(values.data(), bytes_, static_cast<std::size_t>(k) * bytes_);
    }
    beside_in_.put(values.data(), bytes_);  // those of the last input
    graph_.begin();
    stream_.copy(in_.data(), made_.data(), bytes_);
    Status status = sum(stream_, in_, out_);
    stream_.copy(taken_.data(), out_.data(), bytes_);
    if (status.ok())
      status = rank_.path().bcast_on(rank_.gpu(), stream_.get(), in_.data(), bytes_, rank_.size() - 1);
    stream_.copy(taken_.as<char>() + bytes_, in_.data(), bytes_);
    stream_.copy(in_.data(), inputs_.data(), bytes_);
    if (graph_.end() != CUDA_SUCCESS && status.ok()) status = Status(Code::system, "the capture failed");
    return status;
  }
  // A rank by turns is far behind the others; every few launches a call that is not in the graph goes to
  // another stream.
  Status launch_all() {
    Status status;
    for (int launch = 0; launch < launches_ && status.ok(); ++launch) {
      if (launch % 7 == rank_.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      const auto at = static_cast<std::size_t>(launch);
      stream_.copy(made_.data(), inputs_.as<char>() + at % kInputs * bytes_, bytes_);
      graph_.launch(stream_);
      stream_.copy(outputs_.as<char>() + 2 * at * bytes_, taken_.data(), 2 * bytes_);
      if (launch % 5 == 1) status = sum(beside_, beside_in_, beside_out_);
    }
    stream_.wait();
    beside_.wait();
    return status;
  }
  bool is_right() const {
    std::vector<float> got(2 * count());
    std::size_t wrong = 0;
    for (int launch = 0; launch < launches_; ++launch) {
      const float wanted[2] = {total(launch), given(rank_.size() - 1, launch)};
      outputs_.get(got.data(), 2 * bytes_, 2 * static_cast<std::size_t>(launch) * bytes_);
      for (std::size_t i = 0; i < got.size(); ++i)
        wrong += got[i] == wanted[i / count()] ? 0 : 1;
    }
    beside_out_.get(got.data(), bytes_);
    for (std::size_t i = 0; i < count() && launches_ > 1; ++i)
      wrong += got[i] == total(kInputs - 1) ? 0 : 1;
    if (wrong != 0)
      std::printf("  wrong: rank %d of %d, %zu floats in a graph: %zu of them in %d launches\n", rank_.rank(),
                  rank_.size(), count(), wrong, launches_);
    return wrong == 0;
  }

 private:
  std::size_t count() const { return bytes_ / sizeof(float); }
  float total(int launch) const {
    float total = 0;
    for (int r = 0; r < rank_.size(); ++r)
      total += given(r, launch);
    return total;
  }
  Status sum(const TestStream& stream, const TestMemory& in, const TestMemory& out) {
    return rank_.path().allreduce_on(rank_.gpu(), stream.get(), in.data(), out.data(), count(), DType::f32,
                                     Op::sum);
  }

  NodeRank& rank_;
  const std::size_t bytes_;
  const int launches_;
  const TestStream stream_;
  const TestStream beside_;
  const TestMemory inputs_;
  const TestMemory made_;
  const TestMemory in_;
  const TestMemory out_;
  const TestMemory taken_;
  const TestMemory beside_in_;
  const TestMemory beside_out_;
  const TestMemory outputs_;
  TestGraph graph_;
};

Status set_up(NodeRank& rank) {
  const TestStream stream(rank.driver(), 0);
  const TestMemory word(rank.driver(), Memory::device, sizeof(float));
  const Status status =
      rank.path().allreduce_on(rank.gpu(), stream.get(), word.data(), word.data(), 1, DType::f32, Op::sum);
  stream.wait();
  return status;
}

// No rank that is a thread may do what waits for the whole GPU while another one's graph waits for it: so all
// meet before the launches, and after them.
bool check_rank(NodeRank& rank, bool brief) {
  alarm(kLongest);
  Status status = set_up(rank);
  bool right = status.ok();
  const std::pair<std::size_t, int> cases[] = {{1, 1}, {1, brief ? 20 : 100}, {100'003, 6}, {700'001, 2}};
  for (const auto& [count, launches] : cases) {
    Program program(rank, count, launches);
    if (status.ok()) status = program.capture();
    rank.barrier();
    if (status.ok()) status = program.launch_all();
    rank.barrier();
    right = right && status.ok() && program.is_right();
    rank.barrier();
  }
  if (!status.ok()) std::printf("  rank %d of %d: %s\n", rank.rank(), rank.size(), status.message().c_str());
  return right;
}

int check(const char* library, bool brief) {
  int wrong = 0;
  const auto check_one = [brief](NodeRank& rank) { return check_rank(rank, brief); };
  for (const int size : {2, 3}) {
    const bool processes = on_processes(library, size, kScratch, check_one);
    const bool threads = !tries_threads() || on_threads(library, size, kScratch, check_one);
    const char* const of_threads = !tries_threads() ? "not tried" : threads ? "right" : "WRONG";
    std::printf("graphs of %d processes: %s; of %d threads: %s\n", size, processes ? "right" : "WRONG", size,
                of_threads);
    wrong += (threads ? 0 : 1) + (processes ? 0 : 1);
  }
  return wrong == 0 ? 0 : 1;
}

// ---- Speed

constexpr int kSums = 20;
constexpr int kSamples = 21;

struct Row {
  std::size_t bytes;
  double graph_us;  // for each of kSums
  double stream_us;
};
// Of rank 0, where the first process sees it.
struct Findings {
  std::size_t count = 0;
  Row rows[2]{};
};

// The median of what `work` takes, in microseconds, with waiting for the stream.
template <typename Work>
double time(NodeRank& rank, const TestStream& stream, const Work& work) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> samples;
  for (int i = 0; i < kSamples + 2; ++i) {
    rank.barrier();
    const Clock::time_point begin = Clock::now();
    work();
    stream.wait();
    if (i >= 2) samples.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  std::sort(samples.begin(), samples.end());
  return samples[kSamples / 2];
}

bool measure(NodeRank& rank, std::size_t bytes, Findings* findings) {
  const TestStream stream(rank.driver(), 0);
  const TestMemory in(rank.driver(), Memory::device, bytes);
  const TestMemory out(rank.driver(), Memory::device, bytes);
  const std::vector<float> ones(bytes / sizeof(float), 1.0F);
  in.put(ones.data(), bytes);
  Status status;
  const auto sums = [&] {
    for (int i = 0; i < kSums && status.ok(); ++i)
      status = rank.path().allreduce_on(rank.gpu(), stream.get(), in.data(), out.data(), ones.size(),
                                        DType::f32, Op::sum);
  };
  Row row = {bytes, 0, time(rank, stream, sums) / kSums};
  TestGraph graph(rank.driver(), stream);
  graph.begin();
  sums();
  if (graph.end() != CUDA_SUCCESS || !status.ok()) return false;
  out.put(ones.data(), bytes);
  row.graph_us = time(rank, stream, [&] { graph.launch(stream); }) / kSums;
  rank.barrier();
  std::vector<float> got(ones.size());
  out.get(got.data(), bytes);
  if (rank.rank() == 0) findings->rows[findings->count++] = row;
  return std::all_of(got.begin(), got.end(), [](float one) { return one == 2; });
}

int measure_all(const char* library, std::size_t bytes, const char* json) {
  void* const at = mmap(nullptr, sizeof(Findings), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return 1;
  std::string text;
  bool right = true;
  for (const bool threads : {true, false}) {
    if (threads && !tries_threads()) continue;
    auto* const findings = new (at) Findings;
    const auto body = [&](NodeRank& rank) {
      alarm(kLongest);
      return set_up(rank).ok() && measure(rank, 8, findings) && measure(rank, bytes, findings);
    };
    const bool done = threads ? on_threads(library, 2, bytes, body) : on_processes(library, 2, bytes, body);
    right = done && right;
    for (std::size_t i = 0; i < findings->count; ++i) {
      const Row& row = findings->rows[i];
      std::printf(
          "two %s, %10zu B, each of %d sums of float32: %10.2f us in a graph, %10.2f us on a stream\n",
          threads ? "threads" : "processes", row.bytes, kSums, row.graph_us, row.stream_us);
      char line[160];
      std::snprintf(line, sizeof line,
                    R"({"what": "%s", "ranks": 2, "bytes": %zu, "graph_us": %.2f, "stream_us": %.2f})",
                    threads ? "threads" : "processes", row.bytes, row.graph_us, row.stream_us);
      text += std::string(text.empty() ? "" : ",\n    ") + line;
    }
  }
  munmap(at, sizeof(Findings));
  if (json != nullptr && !add_to_json(json, "graphs", text)) {
    std::printf("cannot write to %s\n", json);
    return 1;
  }
  return right ? 0 : 1;
}

int run(int argc, char** argv) {
  std::size_t bytes = 0;
  const char* json = nullptr;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--mib") == 0)
      bytes = static_cast<std::size_t>(std::atof(argv[i + 1]) * 0x1p20) / 4096 * 4096;
    if (std::strcmp(argv[i], "--json") == 0) json = argv[i + 1];
  }
  if (bytes > 0) return measure_all(argv[1], bytes, json);
  return check(argv[1], argc > 2 && std::strcmp(argv[2], "--short") == 0);
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) {
  return argc < 2 ? 2 : heddle::test::run(argc, argv);
}
