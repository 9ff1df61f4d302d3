// The double's streams (fake_cuda.h): what is given to one happens when somebody waits for it, in the order of the context.
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fake_world.hpp"

using namespace fake;

namespace {

// A copy that happens when the stream is waited for.
CUresult copy_later(Address to, Address from, std::size_t bytes, CUstream stream) {
  const CUcontext context = current();
  if (!alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  CUresult error = CUDA_SUCCESS;
  char* const target = world().inside(to, bytes, context, &error);
  const char* const source = world().inside(from, bytes, context, &error);
  if (error != CUDA_SUCCESS) return error;
  give(*queue_of(stream), [=] { std::memcpy(target, source, bytes); });
  return CUDA_SUCCESS;
}

// Work that waits for another process's event: there somebody has to wait for the stream that it was recorded in.
void give_wait(Queue& queue, const std::shared_ptr<Pages>& pages, const CUevent_st::Counts& counts) {
  give(queue, [pages, &counts, wanted = counts.recorded.load()] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (counts.done.load() < wanted) {
      if (std::chrono::steady_clock::now() > end) {
        std::fprintf(stderr, "the double of CUDA: nobody does what another process's event stands for\n");
        std::abort();
      }
      sched_yield();
    }
  });
}

CUresult copy_now(Address to, Address from, std::size_t bytes) {
  const CUresult error = copy_later(to, from, bytes, CU_STREAM_LEGACY);
  if (error == CUDA_SUCCESS) drain(*current()->queue);
  return error;
}

}  // namespace

FAKE CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  ENTER("cuMemcpyDtoHAsync")
  return copy_later(reinterpret_cast<Address>(to), from, bytes, stream);
}
FAKE CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  ENTER("cuMemcpyHtoDAsync")
  return copy_later(to, reinterpret_cast<Address>(from), bytes, stream);
}
FAKE CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  ENTER("cuMemcpyDtoDAsync")
  return copy_later(to, from, bytes, stream);
}
FAKE CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t bytes, CUstream stream) {
  ENTER("cuMemsetD8Async")
  if (!alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
  CUresult error = CUDA_SUCCESS;
  char* const target = world().inside(at, bytes, current(), &error);
  if (error != CUDA_SUCCESS) return error;
  give(*queue_of(stream), [=] { std::memset(target, value, bytes); });
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  ENTER("cuMemcpyDtoH")
  return copy_now(reinterpret_cast<Address>(to), from, bytes);
}
FAKE CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  ENTER("cuMemcpyHtoD")
  return copy_now(to, reinterpret_cast<Address>(from), bytes);
}
FAKE CUresult cuStreamSynchronize(CUstream stream) {
  ENTER("cuStreamSynchronize")
  if (!alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
  drain(*queue_of(stream));
  return CUDA_SUCCESS;
}
// A stream that synchronises with the default stream is that one by another name: all its work is done in the order in which it was
// given. Others have an order of their own.
FAKE CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  ENTER("cuStreamCreate")
  if (!alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
  const bool own = (flags & CU_STREAM_NON_BLOCKING) != 0;
  *stream = new CUstream_st{current(), own ? std::make_shared<Queue>() : current()->queue};
  return CUDA_SUCCESS;
}
FAKE CUresult cuStreamDestroy_v2(CUstream stream) {
  ENTER("cuStreamDestroy")
  delete stream;
  return CUDA_SUCCESS;
}
FAKE CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  ENTER("cuStreamGetCtx")
  *context = is_default(stream) ? current() : stream->context;
  return CUDA_SUCCESS;
}
FAKE CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode) {
  ENTER("cuStreamBeginCapture")
  if (is_default(stream) || stream->captured) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  stream->captured = true;
  return CUDA_SUCCESS;
}
FAKE CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  ENTER("cuStreamEndCapture")
  if (is_default(stream) || !stream->captured) return CUDA_ERROR_ILLEGAL_STATE;
  stream->captured = false;
  *graph = nullptr;
  return CUDA_SUCCESS;
}
FAKE CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  ENTER("cuStreamIsCapturing")
  const bool captured = !is_default(stream) && stream->captured;
  *status = captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
FAKE CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  ENTER("cuStreamWaitEvent")
  const std::shared_ptr<Queue> queue = queue_of(stream);
  if (event->imported) {
    give_wait(*queue, event->pages, event->counts());
  } else if (event->queue != nullptr && event->queue != queue) {
    give(*queue, [other = event->queue, at = event->at] { drain(*other, at); });
  }
  return CUDA_SUCCESS;
}
FAKE CUresult cuEventCreate(CUevent* event, unsigned flags) {
  ENTER("cuEventCreate")
  *event = new CUevent_st;
  // As the driver demands of those that are shared.
  const bool shared = (flags & CU_EVENT_INTERPROCESS) != 0;
  if (shared && (flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
  if (shared) (*event)->pages = std::make_shared<Pages>(sizeof(CUevent_st::Counts));
  return CUDA_SUCCESS;
}
FAKE CUresult cuEventRecord(CUevent event, CUstream stream) {
  ENTER("cuEventRecord")
  const std::shared_ptr<Queue> queue = queue_of(stream);
  if (event->pages != nullptr) {
    const unsigned long long number = ++event->counts().recorded;
    give(*queue, [pages = event->pages, counts = &event->counts(), number] { counts->done = number; });
  }
  event->queue = queue;
  event->at = queue->given;
  return CUDA_SUCCESS;
}

namespace {
// What a handle says, in the double.
struct EventTicket {
  int process;
  int fd;
};
static_assert(sizeof(EventTicket) <= sizeof(CUipcEventHandle));
}  // namespace

FAKE CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event) {
  ENTER("cuIpcGetEventHandle")
  if (event->pages == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const EventTicket ticket = {getpid(), event->pages->fd};
  *handle = {};
  std::memcpy(handle->reserved, &ticket, sizeof ticket);
  return CUDA_SUCCESS;
}
FAKE CUresult cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
  ENTER("cuIpcOpenEventHandle")
  EventTicket ticket = {};
  std::memcpy(&ticket, handle.reserved, sizeof ticket);
  if (ticket.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  auto pages = std::make_shared<Pages>(ticket.process, ticket.fd, sizeof(CUevent_st::Counts));
  if (pages->inside == nullptr) return CUDA_ERROR_MAP_FAILED;
  *event = new CUevent_st;
  (*event)->pages = std::move(pages);
  (*event)->imported = true;
  return CUDA_SUCCESS;
}
FAKE CUresult cuEventSynchronize(CUevent event) {
  ENTER("cuEventSynchronize")
  if (event->queue != nullptr) drain(*event->queue, event->at);
  return CUDA_SUCCESS;
}
// No time passes in the double. (In the headers of CUDA 13 the name stands for another.)
#undef cuEventElapsedTime
FAKE CUresult cuEventElapsedTime(float* milliseconds, CUevent, CUevent) {
  ENTER("cuEventElapsedTime")
  *milliseconds = 1;
  return CUDA_SUCCESS;
}
FAKE CUresult cuEventDestroy_v2(CUevent event) {
  ENTER("cuEventDestroy")
  delete event;
  return CUDA_SUCCESS;
}
