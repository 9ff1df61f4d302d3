// The calls that are made in memory_test.cpp while memory runs out, each by a rank that has its buffers on a
// GPU, or one of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "api/handles.hpp"
#include "cuda_streams.hpp"
#include "device/device_path.hpp"
#include "device/nodes_path.hpp"
#include "heddle/heddle_cuda.h"
#include "heddle/heddle_sparse.h"
#include "node_ranks_of_threads.hpp"

namespace heddle::test {

using Nodes = std::vector<std::uint64_t>;

inline constexpr std::size_t kShort = 20'000;  // floats: several pieces of the scratch
inline constexpr std::size_t kLong = (NodesPath::kFrom >> 2) + 1000;
inline constexpr std::size_t kApart = 40;  // indices from an entry to the next

// A rank: its communicator as the C API has it, and what it sums.
class Seat {
 public:
  Seat(const Bootstrap& bootstrap, const Config& config, std::size_t floats, int gpus)
      : rank(bootstrap.rank),
        ranks(bootstrap.size),
        count(floats),
        device(rank % gpus),
        stream(*driver, device),
        in(*driver, Memory::device, floats * sizeof(float), device),
        out(*driver, Memory::device, floats * sizeof(float), device),
        indices(*driver, Memory::device, floats * sizeof(std::uint32_t), device),
        here(floats) {
    comm.gpu.configure({true, config.pinned_bytes});
    auto made = Communicator::create(bootstrap, config);
    EXPECT_TRUE(made.ok()) << made.status().message();
    comm.communicator = std::move(made).value();
    std::vector<std::uint32_t> own;
    for (std::size_t i = static_cast<std::size_t>(rank); i < floats; i += kApart)
      own.push_back(static_cast<std::uint32_t>(i));
    entries = own.size();
    indices.put(own.data(), entries * sizeof own[0]);
    fill();
  }
  void fill() {
    std::fill(here.begin(), here.end(), static_cast<float>(rank + 1));
    in.put(here.data(), count * sizeof(float));
    out.put(here.data(), count * sizeof(float));
  }
  bool has_all(float value) const {
    std::vector<float> got(count);
    out.get(got.data(), count * sizeof(float));
    return std::count(got.begin(), got.end(), value) == static_cast<std::ptrdiff_t>(count);
  }
  float sum() const { return static_cast<float>(ranks * (ranks + 1)) / 2; }
  bool by_gpus() const {
    DevicePath* const path = comm.communicator->device_path();
    NodesPath* const nodes = comm.communicator->nodes_path();
    return (path != nullptr && path->on()) || (nodes != nullptr && nodes->on());
  }
  bool failed() {
    int failed = 0;
    EXPECT_EQ(heddle_comm_failed(&comm, &failed), HEDDLE_OK);
    return failed != 0;
  }

  heddle_comm comm;
  const int rank;
  const int ranks;
  const std::size_t count;
  const int device;
  const TestStream stream;
  const TestMemory in;
  const TestMemory out;
  const TestMemory indices;
  std::vector<float> here;
  std::size_t entries = 0;
};

struct Case {
  std::string name;
  Nodes nodes;
  int devices;
  std::size_t count;
  bool begins;  // the call is made before the GPUs serve, and the last that is left to the host
  heddle_status (*call)(Seat& seat);
  bool (*is_right)(const Seat& seat);  // null: by entries, of which any are right here

  bool is_on_one_node() const { return nodes.front() == nodes.back(); }
  bool is_on_stream() const;
  // The same, not captured: what sets up cannot be.
  heddle_status (*uncaptured() const)(Seat& seat);
  // The rank whose memory runs out: in one context the one that does the others' work.
  int lacking() const { return is_on_one_node() && devices == 1 ? 0 : 1; }
};

inline heddle_status sum(Seat& s) {
  return heddle_allreduce(s.in.data(), s.out.data(), s.count, HEDDLE_FLOAT32, HEDDLE_SUM, &s.comm);
}
inline heddle_status mixed_sum(Seat& s) {
  if (s.rank != 0) return sum(s);
  const heddle_status status =
      heddle_allreduce(HEDDLE_IN_PLACE, s.here.data(), s.count, HEDDLE_FLOAT32, HEDDLE_SUM, &s.comm);
  if (status == HEDDLE_OK) s.out.put(s.here.data(), s.count * sizeof(float));
  return status;
}
inline heddle_status bcast(Seat& s) {
  return heddle_bcast(s.out.data(), s.count * sizeof(float), 0, &s.comm);
}
inline heddle_status sum_on_stream(Seat& s) {
  return heddle_allreduce_on_stream(s.in.data(), s.out.data(), s.count, HEDDLE_FLOAT32, HEDDLE_SUM, &s.comm,
                                    s.stream.get());
}
inline heddle_status bcast_on_stream(Seat& s) {
  return heddle_bcast_on_stream(s.out.data(), s.count * sizeof(float), 0, &s.comm, s.stream.get());
}
// What follows in the stream is what the launched graph does. A call that was refused leaves it empty.
inline heddle_status in_graph(Seat& s, heddle_status (*call)(Seat& s)) {
  TestGraph graph(*driver, s.stream);
  graph.begin();
  const heddle_status status = call(s);
  const bool captured = graph.end() == CUDA_SUCCESS;
  if (status != HEDDLE_OK) return status;
  EXPECT_TRUE(captured) << "rank " << s.rank;
  if (captured) graph.launch(s.stream);
  s.stream.wait();
  return status;
}
inline heddle_status sum_in_graph(Seat& s) {
  return in_graph(s, sum_on_stream);
}
inline heddle_status bcast_in_graph(Seat& s) {
  return in_graph(s, bcast_on_stream);
}
inline heddle_sparse entries_of(Seat& s) {
  heddle_sparse in = {};
  in.dimension = s.count;
  in.count = s.entries;
  in.index_type = HEDDLE_INDEX32;
  in.value_type = HEDDLE_FLOAT32;
  in.indices = s.indices.data();
  in.values = s.in.data();
  return in;
}
inline heddle_status sparse(Seat& s) {
  const heddle_sparse in = entries_of(s);
  return heddle_sparse_allreduce_dense(&in, s.out.data(), HEDDLE_SUM, &s.comm);
}
inline heddle_status merged(Seat& s) {
  const heddle_sparse in = entries_of(s);
  std::array<std::uint32_t, kLong / 4> to_indices;
  heddle_sparse out = {};
  out.indices = to_indices.data();
  out.values = s.out.data();
  out.capacity = to_indices.size();
  return heddle_sparse_allreduce(&in, &out, HEDDLE_SUM, &s.comm);
}
inline heddle_status in_place(Seat& s) {
  return heddle_sparse_allreduce_in_place(s.out.data(), s.count, HEDDLE_FLOAT32, &s.comm);
}
inline heddle_status compressed(Seat& s, const char* method) {
  return heddle_compressed_allreduce(s.in.data(), s.out.as<float>(), s.count, method, 1, nullptr, &s.comm);
}
inline heddle_status largest(Seat& s) {
  return compressed(s, "topk:0.01");
}
inline heddle_status coded(Seat& s) {
  return compressed(s, "qsgd:8");
}
inline bool Case::is_on_stream() const {
  return call == sum_on_stream || call == bcast_on_stream || call == sum_in_graph || call == bcast_in_graph;
}
inline heddle_status (*Case::uncaptured() const)(Seat& seat) {
  if (call == sum_in_graph) return sum_on_stream;
  return call == bcast_in_graph ? bcast_on_stream : call;
}
inline bool is_sum(const Seat& s) {
  return s.has_all(s.sum());
}
inline bool is_first(const Seat& s) {
  return s.has_all(1);
}

inline const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"a sum in one context", {1, 1, 1}, 1, kShort, false, sum, is_sum},
      {"a sum on two GPUs", {1, 1, 1}, 2, kShort, false, sum, is_sum},
      {"a sum with one rank's vector on the host", {1, 1, 1}, 2, kShort, false, mixed_sum, is_sum},
      {"a bcast in one context", {1, 1}, 1, kShort, false, bcast, is_first},
      {"a bcast on two GPUs", {1, 1, 1}, 2, kShort, false, bcast, is_first},
      {"the sum that sets up in one context", {1, 1}, 1, kShort, true, sum, is_sum},
      {"the sum that sets up on two GPUs", {1, 1, 1}, 2, kShort, true, sum, is_sum},
      {"sparse to dense in one context", {1, 1, 1}, 1, kShort, false, sparse, nullptr},
      {"sparse to dense on two GPUs", {1, 1, 1}, 2, kShort, false, sparse, nullptr},
      {"sparse vectors on two GPUs", {1, 1, 1}, 2, kShort, false, merged, nullptr},
      {"the largest on two GPUs", {1, 1}, 2, kShort, false, largest, nullptr},
      {"codes in one context", {1, 1}, 1, kShort, false, coded, nullptr},
      {"codes on two GPUs", {1, 1}, 2, kShort, false, coded, nullptr},
      {"a stream's sum in one context", {1, 1, 1}, 1, kShort, false, sum_on_stream, is_sum},
      {"a stream's sum on two GPUs", {1, 1, 1}, 2, kShort, false, sum_on_stream, is_sum},
      {"a stream's bcast on two GPUs", {1, 1}, 2, kShort, false, bcast_on_stream, is_first},
      {"a stream's first sum", {1, 1}, 2, kShort, true, sum_on_stream, is_sum},
      {"a graph's sum in one context", {1, 1, 1}, 1, kShort, false, sum_in_graph, is_sum},
      {"a graph's sum on two GPUs", {1, 1, 1}, 2, kShort, false, sum_in_graph, is_sum},
      {"a graph's bcast on two GPUs", {1, 1}, 2, kShort, false, bcast_in_graph, is_first},
      {"a sum over nodes", {1, 1, 2}, 1, kLong, false, sum, is_sum},
      {"a sum over nodes of one rank", {1, 2}, 1, kLong, false, sum, is_sum},
      {"a sum over nodes, one vector on the host", {1, 2}, 1, kLong, false, mixed_sum, is_sum},
      {"a bcast over nodes", {1, 1, 2}, 1, kLong, false, bcast, is_first},
      {"the sum that sets up over nodes", {1, 1, 2}, 1, kLong, true, sum, is_sum},
      {"a stream's sum over nodes", {1, 2}, 1, kShort, false, sum_on_stream, is_sum},
      {"a stream's long sum over nodes", {1, 1, 2}, 1, kLong, false, sum_on_stream, is_sum},
      {"a stream's bcast over nodes", {1, 1, 2}, 1, kLong, false, bcast_on_stream, is_first},
      {"a stream's first sum over nodes", {1, 1, 2}, 1, kLong, true, sum_on_stream, is_sum},
      {"a graph's sum over nodes", {1, 2}, 1, kShort, false, sum_in_graph, is_sum},
      {"a graph's long sum over nodes", {1, 1, 2}, 1, kLong, false, sum_in_graph, is_sum},
      {"sparse to dense over nodes", {1, 2}, 1, kLong, false, sparse, nullptr},
      {"mostly zeros over nodes", {1, 2}, 1, kLong, false, in_place, nullptr},
      {"the largest over nodes", {1, 2}, 1, kLong, false, largest, nullptr},
      {"codes over nodes", {1, 2}, 1, kLong, false, coded, nullptr},
  };
  return all;
}

}  // namespace heddle::test
