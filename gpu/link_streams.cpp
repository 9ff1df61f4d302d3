// What a link does on streams of callers, and in the graphs that they are captured into.
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "gpu/cuda_link.hpp"

namespace heddle::gpu {
namespace {

// The capture that a stream takes part in; 0: none. The context is current.
CUresult capture_of(const Driver& driver, CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
  *id = 0;
  const CUresult error = driver.StreamIsCapturing(stream, status);
  if (error != CUDA_SUCCESS || *status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return error;
  return driver.StreamGetCaptureInfo(stream, status, id, nullptr, nullptr, nullptr);
}

using Gone = std::function<void()>;

void CUDA_CB call_and_delete(void* gone) {
  const std::unique_ptr<Gone> call(static_cast<Gone*>(gone));
  (*call)();
}

}  // namespace

// ---- Events

CUresult CudaLink::make_mark(const Driver& driver, bool for_processes, unsigned turn, Marks* mine) {
  // Events without times cost least, and others cannot be shared.
  unsigned flags = CU_EVENT_DISABLE_TIMING;
  if (for_processes) flags |= CU_EVENT_INTERPROCESS;
  // There may be one from an attempt that failed.
  CUresult error = marks_[turn] != nullptr ? CUDA_SUCCESS : driver.EventCreate(&marks_[turn], flags);
  if (error != CUDA_SUCCESS) return error;
  mine->address[turn] = reinterpret_cast<std::uintptr_t>(marks_[turn]);
  if (!for_processes) return CUDA_SUCCESS;
  CUipcEventHandle handle = {};
  static_assert(sizeof handle == sizeof mine->handle[0]);
  error = driver.IpcGetEventHandle(&handle, marks_[turn]);
  std::memcpy(mine->handle[turn], &handle, sizeof handle);
  return error;
}

Result<Marks> CudaLink::make_marks(bool for_processes) {
  Marks mine;
  mine.origin = origin();
  HEDDLE_TRY(in_context("making events that other ranks wait for", [&](const Driver& driver) {
    CUresult error = CUDA_SUCCESS;
    for (unsigned turn = 0; turn < 2 && error == CUDA_SUCCESS; ++turn)
      error = make_mark(driver, for_processes, turn, &mine);
    return error;
  }));
  mine.end = reinterpret_cast<std::uintptr_t>(end_);
  return mine;
}

Status CudaLink::reach(const Marks& other, Events* events) {
  if (other.origin.same_process(origin())) {
    for (unsigned turn = 0; turn < 2; ++turn)
      events->of[turn] = reinterpret_cast<CUevent>(std::uintptr_t{other.address[turn]});
    events->end = reinterpret_cast<CUevent>(std::uintptr_t{other.end});
    return {};
  }
  for (unsigned turn = 0; turn < 2; ++turn) {
    CUipcEventHandle handle = {};
    std::memcpy(&handle, other.handle[turn], sizeof handle);
    HEDDLE_TRY(in_context("opening another rank's event by CUDA IPC", [&](const Driver& driver) {
      return driver.IpcOpenEventHandle(&events->of[turn], handle);
    }));
    imported_marks_.push_back(events->of[turn]);
  }
  return {};
}

Status CudaLink::open_marks(std::span<const Marks> all, int rank) {
  others_.assign(all.size(), {});
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (static_cast<int>(r) != rank) HEDDLE_TRY(reach(all[r], &others_[r]));
  }
  return {};
}

// Whether it is of the link's context. Of a stream that is being captured the driver tells nothing but that:
// to ask for its context makes the capture fail. But it records events in streams of their own context alone,
// and one that nobody waits for leaves nothing in a graph.
CUresult CudaLink::belongs(const Driver& driver, CUstream stream, CUstreamCaptureStatus status,
                           bool* here) const {
  *here = true;
  // The default streams are those of the current context.
  if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return CUDA_SUCCESS;
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) return CUDA_SUCCESS;
  if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    const CUresult error = driver.EventRecord(event_, stream);
    *here = error != CUDA_ERROR_INVALID_HANDLE;
    return *here ? error : CUDA_SUCCESS;
  }
  // Another stream of this thread's may be captured.
  const Aside aside(driver);
  CUcontext context = nullptr;
  const CUresult error = driver.StreamGetCtx(stream, &context);
  *here = context == context_;
  return error;
}

// Whether work may be given to it: the capture that it would go to, or 0.
Result<cuuint64_t> CudaLink::takes(CUstream stream) const {
  bool here = true;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t capture = 0;
  bool implicit = false;  // the default stream, while one that synchronises with it is captured
  HEDDLE_TRY(in_context("looking at a stream", [&](const Driver& driver) {
    const CUresult error = capture_of(driver, stream, &status, &capture);
    implicit = error == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (error != CUDA_SUCCESS) return implicit ? CUDA_SUCCESS : error;
    return belongs(driver, stream, status, &here);
  }));
  if (!here)
    return Status(Code::unsupported, fmt::format("the stream {} is not of the context on GPU {} that the "
                                                 "buffers are in: pass one that is",
                                                 static_cast<void*>(stream), device_));
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED || implicit)
    return Status(Code::unsupported,
                  fmt::format("the stream {} takes no work, because {}: end that capture first",
                              static_cast<void*>(stream),
                              implicit ? "one that synchronises with it is being captured"
                                       : "its capture into a CUDA graph has failed"));
  return capture;
}

// A graph waits for the event end_ at its launch, and records it: so graphs and other calls follow each other
// in whatever streams they are. Between streams of one capture that is what chain_ is for, which needs no
// node.
Result<bool> CudaLink::begin_on(Stream stream) {
  HEDDLE_TRY(check_there());
  CUstream given = stream != nullptr ? stream : default_stream();
  const Result<cuuint64_t> capture = takes(given);
  if (!capture.ok()) return capture.status();
  capture_ = capture.value();
  HEDDLE_TRY(in_context("waiting for the collective before", [&](const Driver& driver) {
    if (capture_ == 0) return ended_ ? driver.StreamWaitEvent(given, end_, 0) : CUDA_SUCCESS;
    return capture_ == chained_ ? driver.StreamWaitEvent(given, chain_, 0)
                                : driver.StreamWaitEvent(given, end_, CU_EVENT_WAIT_EXTERNAL);
  }));
  at_ = given;
  end_marked_ = false;
  return capture_ != 0;
}

Status CudaLink::mark(unsigned turn) {
  return in_context("recording an event",
                    [&](const Driver& driver) { return driver.EventRecord(marks_[turn], next()); });
}

Status CudaLink::after_others(unsigned turn) {
  return in_context("waiting for other ranks' events", [&](const Driver& driver) {
    CUresult error = CUDA_SUCCESS;
    for (const Events& one : others_) {
      if (one.of[turn] != nullptr && error == CUDA_SUCCESS)
        error = driver.StreamWaitEvent(next(), one.of[turn], 0);
    }
    return error;
  });
}

Status CudaLink::mark_end() {
  HEDDLE_TRY(in_context("recording an event",
                        [&](const Driver& driver) { return driver.EventRecord(end_, next()); }));
  ended_ = end_marked_ = true;
  return {};
}

Status CudaLink::after_end(int rank) {
  return in_context("waiting for another rank's event", [&](const Driver& driver) {
    return driver.StreamWaitEvent(next(), others_[static_cast<std::size_t>(rank)].end, 0);
  });
}

void CudaLink::end_on() {
  if (at_ == stream_) return;
  // Where this fails the context or the capture is of no use any more, and nothing will wait for its work.
  const Current current(cuda_.driver, context_);
  if (current.error() == CUDA_SUCCESS && capture_ == 0) {
    if (!end_marked_) ended_ = cuda_.driver.EventRecord(end_, at_) == CUDA_SUCCESS;
  } else if (current.error() == CUDA_SUCCESS) {
    const CUresult error = cuda_.driver.EventRecordWithFlags(end_, at_, CU_EVENT_RECORD_EXTERNAL);
    if (error == CUDA_SUCCESS) ended_ = true;
    chained_ = cuda_.driver.EventRecord(chain_, at_) == CUDA_SUCCESS ? capture_ : 0;
  }
  at_ = stream_;
}

// ---- Words

Status CudaLink::open_words(std::span<std::byte> memory) {
  const Current current(cuda_.driver, context_);
  if (current.error() != CUDA_SUCCESS)
    return cuda_error(cuda_.driver, current.error(), fmt::format("sharing words with GPU {}", device_));
  return words_.open(memory, stream_);
}

Status CudaLink::write_word(const std::uint32_t* word, std::uint32_t value) {
  CUstreamBatchMemOpParams operation = write_operation(words_.at(word), value);
  return in_context("writing a word in a stream",
                    [&](const Driver& driver) { return driver.StreamBatchMemOp(next(), 1, &operation, 0); });
}

Status CudaLink::take_word(const std::uint32_t* word, std::uint32_t value) {
  CUstreamBatchMemOpParams operations[] = {wait_operation(words_.at(word), 0),
                                           write_operation(words_.at(word), value)};
  return in_context("taking a word in a stream",
                    [&](const Driver& driver) { return driver.StreamBatchMemOp(next(), 2, operations, 0); });
}

Status CudaLink::wait_for_word(const std::uint32_t* word, std::uint32_t value) {
  CUstreamBatchMemOpParams operation = wait_operation(words_.at(word), value);
  return in_context("waiting for a word in a stream",
                    [&](const Driver& driver) { return driver.StreamBatchMemOp(next(), 1, &operation, 0); });
}

// ---- Graphs

Status CudaLink::open_flags(std::span<std::byte> flags, int rank, int size) {
  const Current current(cuda_.driver, context_);
  if (current.error() != CUDA_SUCCESS)
    return cuda_error(cuda_.driver, current.error(), fmt::format("sharing flags on GPU {}", device_));
  return handshake_.open(flags, rank, size, stream_);
}

Status CudaLink::meet_in_graph() {
  return in_context("meeting in a graph", [&](const Driver&) { return handshake_.meet(next()); });
}

Status CudaLink::hear_in_graph() {
  return in_context("waiting for others in a graph", [&](const Driver&) { return handshake_.hear(next()); });
}

Status CudaLink::release_in_graph() {
  return in_context("letting others go on in a graph",
                    [&](const Driver&) { return handshake_.come(next()); });
}

Status CudaLink::follow_in_graph(int leader) {
  return in_context("following another rank in a graph",
                    [&](const Driver&) { return handshake_.meet(next(), leader); });
}

// An object that the graph has a reference to. The driver says by which thread the last one goes.
void CudaLink::when_graph_goes(Gone gone) {
  const Driver& driver = cuda_.driver;
  if (!is_in_graph() || driver.UserObjectCreate == nullptr || driver.UserObjectRelease == nullptr ||
      driver.GraphRetainUserObject == nullptr)
    return;
  const Current current(driver, context_);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  if (current.error() != CUDA_SUCCESS ||
      driver.StreamGetCaptureInfo(at_, &status, nullptr, &graph, nullptr, nullptr) != CUDA_SUCCESS ||
      status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    return;
  auto call = std::make_unique<Gone>(std::move(gone));
  CUuserObject object = nullptr;
  if (driver.UserObjectCreate(&object, call.get(), call_and_delete, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) !=
      CUDA_SUCCESS)
    return;
  Gone* const given = call.release();
  if (driver.GraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) == CUDA_SUCCESS) return;
  *given = [] {};  // the graph is there yet
  driver.UserObjectRelease(object, 1);
}

std::size_t flag_bytes(int size) {
  return Handshake::bytes(size);
}

Result<bool> is_captured(Gpu& gpu, const Place& place, Stream stream) {
  Cuda& cuda = gpu.cuda();
  if (!cuda.lacking.ok()) return cuda.lacking;
  const Result<CUcontext> context = cuda.contexts.of(place);
  if (!context.ok()) return context.status();
  const Current current(cuda.driver, context.value());
  CUresult error = current.error();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  if (error == CUDA_SUCCESS)
    error = capture_of(cuda.driver, stream != nullptr ? stream : default_stream(), &status, &id);
  if (error == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  if (error != CUDA_SUCCESS)
    return cuda_error(cuda.driver, error, fmt::format("looking at a stream on GPU {}", place.device));
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace heddle::gpu
