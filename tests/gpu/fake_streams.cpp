// The double's streams (fake_cuda.h): what is given to one happens when somebody waits for it, in the order of the context.
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
FAKE CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  ENTER("cuStreamWaitEvent")
  const std::shared_ptr<Queue> queue = queue_of(stream);
  if (event->queue != nullptr && event->queue != queue)
    give(*queue, [other = event->queue, at = event->at] { drain(*other, at); });
  return CUDA_SUCCESS;
}
FAKE CUresult cuEventCreate(CUevent* event, unsigned) {
  ENTER("cuEventCreate")
  *event = new CUevent_st;
  return CUDA_SUCCESS;
}
FAKE CUresult cuEventRecord(CUevent event, CUstream stream) {
  ENTER("cuEventRecord")
  event->queue = queue_of(stream);
  event->at = event->queue->given;
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
