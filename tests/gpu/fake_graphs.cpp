// The double's CUDA graphs (fake_cuda.h): captures, launches, and operations of streams on memory.
//
// A graph does its nodes one after the other, in the order in which they were captured. That is one of the
// orders that the driver may choose, so it does not show a dependency that is missing between streams of one
// capture.
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "fake_world.hpp"

using namespace fake;

// Its destructor is called by another thread, as by the driver.
struct CUuserObject_st {
  CUuserObject_st(void* object, CUhostFn destroyer, unsigned references)
      : what(object), destroy(destroyer), count(references) {}
  void release(unsigned references) {
    if ((count -= references) != 0) return;
    std::thread([this] { destroy(what); }).join();
    delete this;
  }
  void* what;
  CUhostFn destroy;
  std::atomic<unsigned> count;
};

namespace {

// One reference to it.
class Reference {
 public:
  explicit Reference(CUuserObject object) : object_(object) {}  // takes over one
  Reference(const Reference& other) : object_(other.object_) { ++object_->count; }
  Reference& operator=(const Reference&) = delete;
  ~Reference() { object_->release(1); }

 private:
  CUuserObject object_;
};

}  // namespace

// References are to things that last until all is gone that was made of a graph, and launches are done.
struct CUgraph_st {
  std::vector<Node> nodes;
  std::deque<Reference> references;
};
struct CUgraphExec_st {
  std::vector<Node> nodes;
  std::deque<Reference> references;
};

namespace {

CUstreamCaptureMode& thread_mode() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

// Of all that are under way, the first of which this is true; or null.
template <typename Is>
Capture* find_capture(const Is& is) {
  for (CUstream stream : world().streams) {
    if (stream->capture != nullptr && is(*stream->capture)) return stream->capture.get();
  }
  return nullptr;
}

// The default stream would have to wait for a stream that is being captured: that capture, or null.
Capture* implicit_capture(CUstream stream) {
  if (!is_default(stream)) return nullptr;
  const std::shared_ptr<Queue> queue = queue_of(stream);
  return find_capture([&](const Capture& one) { return one.origin->queue == queue; });
}

}  // namespace

namespace fake {

Capture::Capture() : graph(new CUgraph_st) {}
Capture::~Capture() {
  delete graph;
}

CUresult check_implicit(CUstream stream) {
  Capture* const found = implicit_capture(stream);
  return found != nullptr ? invalidate(*found, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) : CUDA_SUCCESS;
}

CUresult invalidate(Capture& capture, CUresult error) {
  capture.invalid = true;
  return error;
}

CUresult check_unsafe() {
  const CUstreamCaptureMode mode = thread_mode();
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  Capture* const found = find_capture([mode](const Capture& one) {
    const bool own = one.thread == std::this_thread::get_id() && one.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return own || (mode == CU_STREAM_CAPTURE_MODE_GLOBAL && one.mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
  });
  return found != nullptr ? invalidate(*found, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) : CUDA_SUCCESS;
}

CUresult submit(CUstream stream, const Node& node) {
  check_exists(stream);
  if (!is_default(stream) && stream->capture != nullptr) {
    if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    stream->capture->nodes.push_back(node);
    return CUDA_SUCCESS;
  }
  if (const CUresult error = check_implicit(stream); error != CUDA_SUCCESS) return error;
  node(queue_of(stream));
  return CUDA_SUCCESS;
}

}  // namespace fake

// ---- Captures

FAKE CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  ENTER("cuStreamBeginCapture")
  if (is_default(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  stream->capture = std::make_shared<Capture>();
  stream->capture->id = world().next_id++;
  stream->capture->mode = mode;
  stream->capture->thread = std::this_thread::get_id();
  stream->capture->origin = stream;
  return CUDA_SUCCESS;
}
FAKE CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  ENTER("cuStreamEndCapture")
  *graph = nullptr;
  if (is_default(stream) || stream->capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id())
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  for (CUstream one : world().streams) {
    if (one->capture == capture) one->capture = nullptr;
  }
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  capture->graph->nodes = capture->nodes;
  *graph = std::exchange(capture->graph, nullptr);
  return CUDA_SUCCESS;
}
FAKE CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                        CUgraph* graph, const CUgraphNode** dependencies, size_t* count) {
  ENTER("cuStreamGetCaptureInfo")
  if (dependencies != nullptr || count != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  // To ask does no harm to that capture.
  if (implicit_capture(stream) != nullptr) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  const std::shared_ptr<Capture> capture = is_default(stream) ? nullptr : stream->capture;
  *status = capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE
            : capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                               : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (capture != nullptr && id != nullptr) *id = capture->id;
  if (capture != nullptr && graph != nullptr) *graph = capture->graph;
  return CUDA_SUCCESS;
}
FAKE CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  ENTER("cuStreamIsCapturing")
  return cuStreamGetCaptureInfo_v2(stream, status, nullptr, nullptr, nullptr, nullptr);
}
FAKE CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  ENTER("cuThreadExchangeStreamCaptureMode")
  std::swap(*mode, thread_mode());
  return CUDA_SUCCESS;
}

// ---- Graphs

// The name that cuda.h gives cuGraphInstantiate since CUDA 12.
FAKE CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  ENTER("cuGraphInstantiate")
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *exec = new CUgraphExec_st{graph->nodes, graph->references};
  return CUDA_SUCCESS;
}
FAKE CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  ENTER("cuGraphLaunch")
  if (!is_default(stream) && stream->capture != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  for (const Node& node : exec->nodes) {
    if (const CUresult error = submit(stream, node); error != CUDA_SUCCESS) return error;
  }
  if (exec->references.empty()) return CUDA_SUCCESS;
  return submit(stream, Work([held = exec->references] { return true; }));
}
FAKE CUresult cuGraphExecDestroy(CUgraphExec exec) {
  ENTER("cuGraphExecDestroy")
  delete exec;
  return CUDA_SUCCESS;
}
FAKE CUresult cuGraphDestroy(CUgraph graph) {
  ENTER("cuGraphDestroy")
  delete graph;
  return CUDA_SUCCESS;
}

FAKE CUresult cuUserObjectCreate(CUuserObject* object, void* what, CUhostFn destroy, unsigned references,
                                 unsigned flags) {
  ENTER("cuUserObjectCreate")
  if (flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC || references == 0) return CUDA_ERROR_INVALID_VALUE;
  *object = new CUuserObject_st(what, destroy, references);
  return CUDA_SUCCESS;
}
FAKE CUresult cuUserObjectRelease(CUuserObject object, unsigned references) {
  ENTER("cuUserObjectRelease")
  object->release(references);
  return CUDA_SUCCESS;
}
FAKE CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned references,
                                      unsigned flags) {
  ENTER("cuGraphRetainUserObject")
  if (references != 1 || flags != CU_GRAPH_USER_OBJECT_MOVE) return CUDA_ERROR_NOT_SUPPORTED;
  graph->references.emplace_back(object);
  return CUDA_SUCCESS;
}

// ---- Memory, as streams write it and wait for it

namespace {

struct MemoryOperation {
  enum class What { write, wait } what;
  std::uint32_t value;
  std::uint32_t* at;
};

// What heddle needs of them: words of 32 bits, in memory of the host's that is registered, since another
// GPU's may not be written so.
CUresult read_operation(const CUstreamBatchMemOpParams& given, MemoryOperation* operation) {
  const bool waits = given.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32;
  const CUdeviceptr at = waits ? given.waitValue.address : given.writeValue.address;
  const Memory* found = world().find(at);
  if (!waits && given.operation != CU_STREAM_MEM_OP_WRITE_VALUE_32) return CUDA_ERROR_NOT_SUPPORTED;
  if (waits && given.waitValue.flags != CU_STREAM_WAIT_VALUE_EQ) return CUDA_ERROR_NOT_SUPPORTED;
  if (!waits && given.writeValue.flags != CU_STREAM_WRITE_VALUE_DEFAULT) return CUDA_ERROR_NOT_SUPPORTED;
  if (at % 4 != 0 || found == nullptr || found->sort != Sort::registered) return CUDA_ERROR_INVALID_VALUE;
  using What = MemoryOperation::What;
  *operation = {waits ? What::wait : What::write, waits ? given.waitValue.value : given.writeValue.value,
                reinterpret_cast<std::uint32_t*>(at)};
  return CUDA_SUCCESS;
}

// False: it waits on.
bool carry_out(const MemoryOperation& one) {
  const std::atomic_ref<std::uint32_t> word(*one.at);
  if (one.what == MemoryOperation::What::wait) return word.load() == one.value;
  word.store(one.value);
  return true;
}

}  // namespace

FAKE CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams* given,
                                    unsigned flags) {
  come_to_room(stream);
  ENTER("cuStreamBatchMemOp")
  if (!alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
  if (count == 0 || count > 255 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<MemoryOperation> operations(count);
  for (unsigned i = 0; i < count; ++i) {
    if (const CUresult error = read_operation(given[i], &operations[i]); error != CUDA_SUCCESS) return error;
  }
  return submit(stream, Work([operations, next = std::size_t{0}]() mutable {
                  while (next < operations.size() && carry_out(operations[next]))
                    ++next;
                  return next == operations.size();
                }));
}
