// Sums and bcasts on streams, and in CUDA graphs, by way of the host, as on several nodes, among ranks that
// are processes, and where HEDDLE_SHARED_CONTEXT=1 threads, on one GPU; and on nodes that are made up, whose
// ranks share large vectors out. As a plain program: relay_check LIBCUDA [--short]. What a stream waits for
// nothing on the host can time out: ranks that hang are ended by an alarm.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "cuda_streams.hpp"
#include "device/stream_relay.hpp"
#include "node_ranks.hpp"

namespace heddle::test {
namespace {

constexpr unsigned kLongest = 25;     // seconds for a group of ranks
constexpr std::uint64_t kShared = 4;  // those that are long, of check_calls() and of the graph

// Small enough to be added exactly.
float given(int rank, int call, std::size_t i) {
  return static_cast<float>((static_cast<std::size_t>(rank) + 1) * (i % 1009) +
                            static_cast<std::size_t>(call));
}

// One rank's sum, or bcast from the last rank, on a stream, behind work that makes the input and before work
// that takes the result and overwrites both.
class Call {
 public:
  Call(NodeRank& rank, const TestStream& stream, int number, std::size_t count)
      : rank_(rank),
        number_(number),
        count_(count),
        stream_(stream),
        made_(rank.driver(), Memory::device, bytes()),
        spoiled_(rank.driver(), Memory::device, bytes()),
        in_(rank.driver(), Memory::device, bytes()),
        out_(rank.driver(), Memory::device, bytes()),
        taken_(rank.driver(), Memory::device, bytes()) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = given(rank.rank(), number, i);
    made_.put(values.data(), bytes());
  }
  Status enqueue(StreamRelay& relay) {
    stream_.copy(in_.data(), made_.data(), bytes());
    const bool sum = number_ % 2 == 0;
    Status status = sum ? relay.allreduce_on(rank_.gpu(), stream_.get(), in_.data(), out_.data(), count_,
                                             DType::f32, Op::sum)
                        : relay.bcast_on(rank_.gpu(), stream_.get(), in_.data(), bytes(), rank_.size() - 1);
    stream_.copy(taken_.data(), sum ? out_.data() : in_.data(), bytes());
    stream_.copy(in_.data(), spoiled_.data(), bytes());
    stream_.copy(out_.data(), spoiled_.data(), bytes());
    return status;
  }
  // In the order of the stream: nothing is left of what it took.
  void spoil() const { stream_.copy(taken_.data(), spoiled_.data(), bytes()); }
  bool is_right() const {
    stream_.wait();
    std::vector<float> got(count_);
    taken_.get(got.data(), bytes());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      float wanted = given(rank_.size() - 1, number_, i);
      for (int r = 0; number_ % 2 == 0 && r < rank_.size() - 1; ++r)
        wanted += given(r, number_, i);
      wrong += got[i] == wanted ? 0 : 1;
    }
    if (wrong != 0)
      std::printf("  wrong: rank %d of %d, call %d: %zu of %zu floats\n", rank_.rank(), rank_.size(), number_,
                  wrong, count_);
    return wrong == 0;
  }

 private:
  std::size_t bytes() const { return count_ * sizeof(float); }

  NodeRank& rank_;
  const int number_;
  const std::size_t count_;
  const TestStream& stream_;
  const TestMemory made_;
  const TestMemory spoiled_;
  const TestMemory in_;
  const TestMemory out_;
  const TestMemory taken_;
};

bool report(NodeRank& rank, const Status& status) {
  if (!status.ok()) std::printf("  rank %d of %d: %s\n", rank.rank(), rank.size(), status.message().c_str());
  return status.ok();
}

// Memory first and last: to allocate and free it may wait for the whole GPU, on which another rank's stream
// waits for this one's. Few streams: ranks that are threads share the GPU's queues (node_ranks.cpp), and a
// stream that waits holds up those behind it in its queue.
using Streams = TestStream[2];
bool check_calls(NodeRank& rank, StreamRelay& relay, const Streams& streams, bool brief) {
  const std::size_t counts[] = {1, 1037, 100'003, brief ? std::size_t{300'000} : std::size_t{12'000'001}};
  std::vector<std::unique_ptr<Call>> calls;
  int number = 0;
  for (const std::size_t count : counts) {
    for (int i = 0; i < 2; ++i, ++number)
      calls.push_back(std::make_unique<Call>(rank, streams[number % 3 % 2], number, count));
  }
  rank.is_at("a barrier before calls");
  rank.barrier();
  rank.is_at("calls");
  Status status;
  for (const auto& call : calls) {
    if (status.ok()) status = call->enqueue(relay);
  }
  bool right = report(rank, status);
  rank.is_at("waiting for the streams of calls");
  for (const auto& call : calls)
    right = right && call->is_right();
  rank.is_at("a barrier after calls");
  rank.barrier();
  return right;
}

// A graph of short and long ones, launched between calls on the other stream.
bool check_graph(NodeRank& rank, StreamRelay& relay, const Streams& streams) {
  std::vector<std::unique_ptr<Call>> calls;
  for (const std::size_t count : {std::size_t{1}, std::size_t{300'003}}) {
    for (int number = 0; number < 2; ++number)
      calls.push_back(std::make_unique<Call>(rank, streams[0], number, count));
  }
  Call beside(rank, streams[1], 2, 1037);
  TestGraph graph(rank.driver(), streams[0]);
  rank.is_at("a capture");
  graph.begin();
  Status status;
  for (const auto& call : calls) {
    if (status.ok()) status = call->enqueue(relay);
  }
  if (graph.end() != CUDA_SUCCESS && status.ok()) status = Status(Code::system, "the capture failed");
  bool right = report(rank, status);
  rank.barrier();
  for (int launch = 0; launch < 3 && right; ++launch) {
    rank.is_at("the launch of a graph");
    for (const auto& call : calls)
      call->spoil();
    graph.launch(streams[0]);
    rank.is_at("a call beside a graph");
    right = report(rank, beside.enqueue(relay)) && beside.is_right();
    rank.is_at("waiting for a graph");
    for (const auto& call : calls)
      right = right && call->is_right();
  }
  rank.barrier();
  return right;
}

bool check_all(NodeRank& rank, StreamRelay& relay, bool brief) {
  const Streams streams = {{rank.driver(), 0}, {rank.driver(), 0}};
  const bool calls = check_calls(rank, relay, streams, brief);
  return check_graph(rank, relay, streams) && calls;
}

bool check_rank(NodeRank& rank, bool brief) {
  alarm(kLongest);
  const std::unique_ptr<HostCollectives> ranks = rank.collectives(0);
  StreamRelay relay(
      *ranks, [&]() -> Result<std::unique_ptr<HostCollectives>> { return rank.collectives(1); },
      Log(LogLevel::warn, rank.rank()), nullptr, true);
  return check_all(rank, relay, brief);
}

// On two nodes, the last rank alone on its own.
bool check_shared(NodeRank& rank, bool brief) {
  alarm(kLongest);
  const Log log(LogLevel::warn, rank.rank());
  const std::unique_ptr<Meeting> node = rank.made_up_node();
  const std::unique_ptr<HostCollectives> ranks = rank.collectives(0);
  StreamRelay relay(
      *ranks, [&]() -> Result<std::unique_ptr<HostCollectives>> { return rank.collectives(1); }, log,
      std::make_unique<StreamShares>(*node, 1, std::size_t{brief ? 1U : 16U} << 20, log), true);
  const bool right = check_all(rank, relay, brief);
  if (relay.shared() != kShared)
    std::printf("  rank %d: %d calls were shared out, not %d\n", rank.rank(),
                static_cast<int>(relay.shared()), static_cast<int>(kShared));
  return right && relay.shared() == kShared;
}

// Whether all is right.
bool check_both(const char* what, const char* library, int size, const RankBody& body) {
  using On = bool (*)(const char*, int, std::size_t, const RankBody&);
  const auto timed = [&](const char* kind, On on) {
    const auto begin = std::chrono::steady_clock::now();
    const bool right = on(library, size, 0, body);
    std::printf("%s, %d %s: %s (%.1f s)\n", what, size, kind, right ? "right" : "WRONG",
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    return right;
  };
  return timed("processes", on_processes) && (!tries_threads() || timed("threads", on_threads));
}

int check(const char* library, bool brief) {
  bool right = true;
  for (const int size : {2, 3}) {
    right = right && check_both("streams by way of the host", library, size,
                                [brief](NodeRank& rank) { return check_rank(rank, brief); });
  }
  for (const int size : {3, 4}) {
    right = right && check_both("vectors shared out", library, size,
                                [brief](NodeRank& rank) { return check_shared(rank, brief); });
  }
  return right ? 0 : 1;
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) {
  return heddle::test::run_check(argc, argv, heddle::test::check);
}
