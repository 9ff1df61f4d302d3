// The double's streams (fake_cuda.h): what is given to one happens when somebody waits for it, in the order
// of the context.
#include <unistd.h>

#include <cstring>
#include <memory>
#include <vector>

#include "fake_world.hpp"

using namespace fake;

namespace {

constexpr int kGreatestPriority = -5;
constexpr std::size_t kMostPitch = 0x7FFFFFFF;  // CU_DEVICE_ATTRIBUTE_MAX_PITCH

// A copy that happens when the stream is waited for.
CUresult copy_later(Address to, Address from, std::size_t bytes, CUstream stream) {
  const CUcontext context = current();
  if (!alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  CUresult error = CUDA_SUCCESS;
  char* const target = world().inside(to, bytes, context, &error);
  const char* const source = world().inside(from, bytes, context, &error);
  if (error != CUDA_SUCCESS) return error;
  return submit(stream, Work([=] {
                  std::memcpy(target, source, bytes);
                  return true;
                }));
}

CUresult copy_now(const char* name, Address to, Address from, std::size_t bytes) {
  std::shared_ptr<Queue> queue;
  unsigned long long at = 0;
  {
    ENTER_UNSAFE(name)
    const CUresult error = copy_later(to, from, bytes, CU_STREAM_LEGACY);
    if (error != CUDA_SUCCESS) return error;
    queue = current()->queue;
    at = queue->given;
  }
  come_to(queue, at);
  return CUDA_SUCCESS;
}

// ---- What events stand for, when they are recorded and waited for

void record_in(CUevent event, const std::shared_ptr<Queue>& queue) {
  if (event->pages != nullptr) {
    const unsigned long long number = ++event->counts().recorded;
    give(*queue, [pages = event->pages, counts = &event->counts(), number] {
      counts->done = number;
      return true;
    });
  }
  event->queue = queue;
  event->at = queue->given;
}

void wait_in(CUevent event, const std::shared_ptr<Queue>& queue) {
  if (event->imported) {
    // There somebody has to wait for the stream that it was recorded in.
    CUevent_st::Counts& counts = event->counts();
    give(*queue, [pages = event->pages, &counts, wanted = counts.recorded.load()] {
      return counts.done.load() >= wanted;
    });
  } else if (event->queue != nullptr && event->queue != queue) {
    give(*queue, [other = event->queue, at = event->at] { return drain(*other, at); });
  }
}

// The capture that a stream takes part in, or null.
std::shared_ptr<Capture> capture_of(CUstream stream) {
  check_exists(stream);
  return is_default(stream) ? nullptr : stream->capture;
}

// Events are recorded in streams of the context that they were made in.
bool is_of_its_context(CUevent event, CUstream stream) {
  return world().events.at(event) == (is_default(stream) ? current() : stream->context);
}

}  // namespace

FAKE CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  come_to_room(stream);
  ENTER("cuMemcpyDtoHAsync")
  world().copied["cuMemcpyDtoHAsync"] += bytes;
  return copy_later(reinterpret_cast<Address>(to), from, bytes, stream);
}
FAKE CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  come_to_room(stream);
  ENTER("cuMemcpyHtoDAsync")
  world().copied["cuMemcpyHtoDAsync"] += bytes;
  return copy_later(to, reinterpret_cast<Address>(from), bytes, stream);
}
FAKE CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  come_to_room(stream);
  ENTER("cuMemcpyDtoDAsync")
  world().copied["cuMemcpyDtoDAsync"] += bytes;
  return copy_later(to, from, bytes, stream);
}
// Between a device and the host, as heddle uses it.
FAKE CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* what, CUstream stream) {
  come_to_room(stream);
  ENTER("cuMemcpy2DAsync")
  const CUDA_MEMCPY2D& w = *what;
  const bool to_host = w.srcMemoryType == CU_MEMORYTYPE_DEVICE && w.dstMemoryType == CU_MEMORYTYPE_HOST;
  const bool to_device = w.srcMemoryType == CU_MEMORYTYPE_HOST && w.dstMemoryType == CU_MEMORYTYPE_DEVICE;
  const bool known =
      (to_host || to_device) && w.srcXInBytes == 0 && w.srcY == 0 && w.dstXInBytes == 0 && w.dstY == 0;
  if (!alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
  if (!known || w.WidthInBytes == 0 || w.Height == 0) return CUDA_ERROR_NOT_SUPPORTED;
  const size_t pitch = to_host ? w.srcPitch : w.dstPitch;
  if (w.srcPitch < w.WidthInBytes || pitch > kMostPitch || w.dstPitch < w.WidthInBytes)
    return CUDA_ERROR_INVALID_VALUE;
  world().copied["cuMemcpy2DAsync"] += w.WidthInBytes * w.Height;
  CUresult error = CUDA_SUCCESS;
  char* const there = world().inside(to_host ? w.srcDevice : w.dstDevice,
                                     (w.Height - 1) * pitch + w.WidthInBytes, current(), &error);
  if (error != CUDA_SUCCESS) return error;
  const char* const from = to_host ? there : static_cast<const char*>(w.srcHost);
  char* const to = to_host ? static_cast<char*>(w.dstHost) : there;
  return submit(stream, Work([from, to, w] {
                  for (std::size_t row = 0; row < w.Height; ++row)
                    std::memcpy(to + row * w.dstPitch, from + row * w.srcPitch, w.WidthInBytes);
                  return true;
                }));
}
FAKE CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t bytes, CUstream stream) {
  come_to_room(stream);
  ENTER("cuMemsetD8Async")
  if (!alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult error = CUDA_SUCCESS;
  char* const target = world().inside(at, bytes, current(), &error);
  if (error != CUDA_SUCCESS) return error;
  return submit(stream, Work([=] {
                  std::memset(target, value, bytes);
                  return true;
                }));
}
FAKE CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return copy_now("cuMemcpyDtoH", reinterpret_cast<Address>(to), from, bytes);
}
// From memory that is not pinned: done when that has been read. What arrives comes after the work that the
// default stream was given, and nobody waits for it.
FAKE CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  ENTER_UNSAFE("cuMemcpyHtoD")
  if (!alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
  CUresult error = CUDA_SUCCESS;
  char* const target = world().inside(to, bytes, current(), &error);
  if (error != CUDA_SUCCESS) return error;
  const auto* const source = static_cast<const char*>(from);
  return submit(CU_STREAM_LEGACY, Work([target, data = std::vector<char>(source, source + bytes)] {
                  std::memcpy(target, data.data(), data.size());
                  return true;
                }));
}
// Where it is to fail the work does not happen any more; that of a default stream, which others wait for as
// well, does now: not later, when its memory may be gone.
FAKE CUresult cuStreamSynchronize(CUstream stream) {
  std::shared_ptr<Queue> queue;
  unsigned long long at = 0;
  CUresult error = CUDA_SUCCESS;
  {
    const std::lock_guard lock(world().mutex);
    error = world().enter("cuStreamSynchronize");
    if (error == CUDA_ERROR_NOT_INITIALIZED) return error;
    if (const CUresult unsafe = check_unsafe(); unsafe != CUDA_SUCCESS) return unsafe;
    if (!alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
    if (const CUresult implicit = check_implicit(stream); implicit != CUDA_SUCCESS) return implicit;
    if (const auto capture = capture_of(stream))
      return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    queue = queue_of(stream);
    at = queue->given;
    if (error != CUDA_SUCCESS && queue != current()->queue) {
      queue->work.clear();
      queue->done = at;
    }
  }
  come_to(queue, at);
  return error;
}
// Whoever asks is told that there is work left, which is done meanwhile: whoever asks again finds none.
FAKE CUresult cuStreamQuery(CUstream stream) {
  ENTER_UNSAFE("cuStreamQuery")
  if (!alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult implicit = check_implicit(stream); implicit != CUDA_SUCCESS) return implicit;
  if (const auto capture = capture_of(stream))
    return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  const std::shared_ptr<Queue> queue = queue_of(stream);
  if (queue->done == queue->given) return CUDA_SUCCESS;
  drain(*queue, queue->given);
  return CUDA_ERROR_NOT_READY;
}
// A stream that synchronises with the default stream is that one by another name: all its work is done in the
// order in which it was given. Others have an order of their own.
FAKE CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  ENTER("cuStreamCreate")
  if (!alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
  const bool own = (flags & CU_STREAM_NON_BLOCKING) != 0;
  *stream = new CUstream_st{current(), own ? make_queue() : current()->queue, nullptr};
  const auto& channels = current()->channels;
  if (own && !channels.empty()) (*stream)->queue->channel = channels[current()->streams++ % channels.size()];
  world().streams.insert(*stream);
  return CUDA_SUCCESS;
}
// The double has no use for priorities, but says whether they were the greatest.
FAKE CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  ENTER("cuCtxGetStreamPriorityRange")
  if (!alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
  *least = 0;
  *greatest = kGreatestPriority;
  return CUDA_SUCCESS;
}
FAKE CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  {
    ENTER("cuStreamCreateWithPriority")
    if (priority == kGreatestPriority) ++world().calls["a stream of the greatest priority"];
  }
  return cuStreamCreate(stream, flags);
}
FAKE CUresult cuStreamDestroy_v2(CUstream stream) {
  ENTER("cuStreamDestroy")
  check_exists(stream);
  world().streams.erase(stream);
  delete stream;
  return CUDA_SUCCESS;
}
// Of a stream that is being captured the driver answers but whether it is, and what into.
FAKE CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  ENTER_UNSAFE("cuStreamGetCtx")
  if (const auto capture = capture_of(stream))
    return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  *context = is_default(stream) ? current() : stream->context;
  return CUDA_SUCCESS;
}
// An event that was recorded in a capture takes the stream into it, and no other event passes into one or out
// of it.
FAKE CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  come_to_room(stream);
  ENTER("cuStreamWaitEvent")
  check_exists(event);
  if (const CUresult implicit = check_implicit(stream); implicit != CUDA_SUCCESS) return implicit;
  const std::shared_ptr<Capture> capture = capture_of(stream);
  if (flags == CU_EVENT_WAIT_EXTERNAL) {
    if (capture == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return submit(stream, Node([event](const std::shared_ptr<Queue>& queue) { wait_in(event, queue); }));
  }
  if (event->capture != nullptr && capture == nullptr && !is_default(stream)) {
    stream->capture = event->capture;
    return CUDA_SUCCESS;
  }
  if (event->capture != capture) {
    if (capture != nullptr) invalidate(*capture, CUDA_SUCCESS);
    if (event->capture != nullptr) invalidate(*event->capture, CUDA_SUCCESS);
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (capture == nullptr) wait_in(event, queue_of(stream));
  return CUDA_SUCCESS;
}
FAKE CUresult cuEventCreate(CUevent* event, unsigned flags) {
  ENTER("cuEventCreate")
  *event = new CUevent_st;
  world().events[*event] = current();
  // As the driver demands of those that are shared.
  const bool shared = (flags & CU_EVENT_INTERPROCESS) != 0;
  if (shared && (flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
  if (shared) (*event)->pages = std::make_shared<Pages>(sizeof(CUevent_st::Counts));
  return CUDA_SUCCESS;
}
FAKE CUresult cuEventRecord(CUevent event, CUstream stream) {
  come_to_room(stream);
  ENTER("cuEventRecord")
  check_exists(event);
  if (!is_of_its_context(event, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult implicit = check_implicit(stream); implicit != CUDA_SUCCESS) return implicit;
  const std::shared_ptr<Capture> capture = capture_of(stream);
  if (capture != nullptr && event->pages != nullptr)
    return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  event->capture = capture;
  if (capture == nullptr) record_in(event, queue_of(stream));
  return CUDA_SUCCESS;
}
// With this flag each launch of the graph records it.
FAKE CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  ENTER("cuEventRecordWithFlags")
  check_exists(event);
  if (!is_of_its_context(event, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (flags != CU_EVENT_RECORD_EXTERNAL || capture_of(stream) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return submit(stream, Node([event](const std::shared_ptr<Queue>& queue) { record_in(event, queue); }));
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
  world().events[*event] = current();
  (*event)->pages = std::move(pages);
  (*event)->imported = true;
  return CUDA_SUCCESS;
}
FAKE CUresult cuEventSynchronize(CUevent event) {
  std::shared_ptr<Queue> queue;
  unsigned long long at = 0;
  {
    ENTER_UNSAFE("cuEventSynchronize")
    check_exists(event);
    if (event->capture != nullptr) return invalidate(*event->capture, CUDA_ERROR_CAPTURED_EVENT);
    queue = event->queue;
    at = event->at;
  }
  if (queue != nullptr) come_to(queue, at);
  return CUDA_SUCCESS;
}
// As cuStreamQuery, and as for those who wait the GPU does the work of all streams meanwhile.
FAKE CUresult cuEventQuery(CUevent event) {
  ENTER_UNSAFE("cuEventQuery")
  check_exists(event);
  if (event->capture != nullptr) return invalidate(*event->capture, CUDA_ERROR_CAPTURED_EVENT);
  const std::shared_ptr<Queue> queue = event->queue;
  if (queue == nullptr || queue->done >= event->at) return CUDA_SUCCESS;
  drain_all();
  return CUDA_ERROR_NOT_READY;
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
  check_exists(event);
  world().events.erase(event);
  delete event;
  return CUDA_SUCCESS;
}
