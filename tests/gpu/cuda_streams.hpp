// Streams, graphs and words on a GPU, for tests of collectives on streams: by CUDA's driver or its double.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "cuda_memory.hpp"

namespace heddle::test {

// For as long as it lives ranks that are threads and share a GPU are refused where their streams would wait
// for words in memory, as they are for those who use the library.
class ThreadsRefused {
 public:
  ThreadsRefused() { setenv(kName, "0", 1); }
  ThreadsRefused(const ThreadsRefused&) = delete;
  ThreadsRefused& operator=(const ThreadsRefused&) = delete;
  ~ThreadsRefused() { setenv(kName, "1", 1); }

 private:
  static constexpr const char* kName = "HEDDLE_SHARED_CONTEXT";
};

// A stream that does not synchronise with the default stream, unless it is told to, in a device's primary
// context; current in the calling thread.
class TestStream {
 public:
  TestStream(const TestDriver& driver, int device, unsigned flags = CU_STREAM_NON_BLOCKING)
      : driver_(driver) {
    driver.set_current(driver.primary(device));
    driver.call<PFN_cuStreamCreate_v2000>("cuStreamCreate", &stream_, flags);
  }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  ~TestStream() { driver_.call<PFN_cuStreamDestroy_v4000>("cuStreamDestroy_v2", stream_); }
  CUstream get() const { return stream_; }
  void copy(void* to, const void* from, std::size_t bytes) const {
    driver_.call<PFN_cuMemcpyDtoDAsync_v3020>("cuMemcpyDtoDAsync_v2", reinterpret_cast<CUdeviceptr>(to),
                                              reinterpret_cast<CUdeviceptr>(from), bytes, stream_);
  }
  void wait() const { driver_.call<PFN_cuStreamSynchronize_v2000>("cuStreamSynchronize", stream_); }

 private:
  const TestDriver& driver_;
  CUstream stream_ = nullptr;
};

// What a stream waits for until open().
class TestGate {
 public:
  explicit TestGate(const TestDriver& driver) : driver_(driver) {
    driver.set_current(driver.primary(0));
    driver.call<PFN_cuMemHostRegister_v6050>("cuMemHostRegister_v2", &words_, sizeof words_,
                                             unsigned{CU_MEMHOSTREGISTER_DEVICEMAP});
  }
  TestGate(const TestGate&) = delete;
  TestGate& operator=(const TestGate&) = delete;
  ~TestGate() {
    driver_.set_current(driver_.primary(0));
    driver_.call<PFN_cuMemHostUnregister_v4000>("cuMemHostUnregister", &words_);
  }
  void hold(const TestStream& stream) {
    CUstreamBatchMemOpParams wait = {};
    wait.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    wait.waitValue.address = reinterpret_cast<CUdeviceptr>(&words_);
    wait.waitValue.value = 1;
    wait.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    driver_.call<PFN_cuStreamBatchMemOp_v11070>("cuStreamBatchMemOp_v2", stream.get(), 1U, &wait, 0U);
  }
  void open() { std::atomic_ref(words_.first).store(1); }

 private:
  const TestDriver& driver_;
  struct alignas(4096) {
    std::uint32_t first = 0;
  } words_;
};

// What a stream is given between begin() and end(), to be launched as often as one likes. Other threads are
// left alone meanwhile, unless begin() is told otherwise.
class TestGraph {
 public:
  TestGraph(const TestDriver& driver, const TestStream& stream) : driver_(driver), stream_(stream.get()) {}
  TestGraph(const TestGraph&) = delete;
  TestGraph& operator=(const TestGraph&) = delete;
  ~TestGraph() { destroy(); }
  // It may be running yet.
  void destroy() {
    if (exec_ != nullptr) driver_.call<PFN_cuGraphExecDestroy_v10000>("cuGraphExecDestroy", exec_);
    exec_ = nullptr;
  }
  void begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) const {
    driver_.call<PFN_cuStreamBeginCapture_v10010>("cuStreamBeginCapture_v2", stream_, mode);
  }
  // What ending the capture says; the graph can be launched where that is CUDA_SUCCESS.
  CUresult end() {
    CUgraph graph = nullptr;
    const auto end_capture = driver_.find<PFN_cuStreamEndCapture_v10000>("cuStreamEndCapture");
    const CUresult error = end_capture(stream_, &graph);
    if (error != CUDA_SUCCESS) return error;
    driver_.call<PFN_cuGraphInstantiateWithFlags_v11040>("cuGraphInstantiateWithFlags", &exec_, graph, 0ULL);
    driver_.call<PFN_cuGraphDestroy_v10000>("cuGraphDestroy", graph);
    return CUDA_SUCCESS;
  }
  void launch(const TestStream& stream) const {
    driver_.call<PFN_cuGraphLaunch_v10000>("cuGraphLaunch", exec_, stream.get());
  }

 private:
  const TestDriver& driver_;
  const CUstream stream_;
  CUgraphExec exec_ = nullptr;
};

// Words in a device's memory.
class TestWords {
 public:
  TestWords(const TestDriver& driver, int device, std::size_t count, std::int32_t value,
            Memory kind = Memory::device)
      : memory_(driver, kind, count * sizeof(std::int32_t), device), count_(count) {
    set(value);
  }
  void set(std::int32_t value) const { put(std::vector<std::int32_t>(count_, value)); }
  void put(const std::vector<std::int32_t>& all) const { memory_.put(all.data(), bytes()); }
  // What `count` of them from `begin` on all are, or -1.
  std::int32_t value(std::size_t begin, std::size_t count) const {
    std::vector<std::int32_t> all(count);
    memory_.get(all.data(), count * sizeof(std::int32_t), begin * sizeof(std::int32_t));
    for (const std::int32_t one : all) {
      if (one != all[0]) return -1;
    }
    return all[0];
  }
  std::int32_t value() const { return value(0, count_); }
  std::int32_t* at(std::size_t index = 0) const { return memory_.as<std::int32_t>() + index; }
  std::size_t bytes() const { return count_ * sizeof(std::int32_t); }
  std::size_t count() const { return count_; }

 private:
  const TestMemory memory_;
  const std::size_t count_;
};

}  // namespace heddle::test
