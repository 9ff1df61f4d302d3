// The double's streams (fake_cuda.h): what is given to one happens when somebody waits for it, in the order of the context.
#include <algorithm>
#include <cstring>

#include "fake_world.hpp"

using namespace fake;

namespace {

// A copy that happens when the stream is waited for; mapped memory may go over several mappings.
CUresult copy_later(Address to, Address from, std::size_t bytes) {
  const CUcontext context = current();
  if (!alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  for (std::size_t at = 0; at < bytes;) {
    std::size_t length = bytes - at;
    for (const Address side : {to + at, from + at}) {
      Address begin = 0;
      const Memory* found = world().find(side, &begin);
      if (found != nullptr && found->sort == Sort::mapped)
        length = std::min(length, begin + found->bytes - side);
    }
    CUresult error = CUDA_SUCCESS;
    char* const target = world().inside(to + at, length, context, &error);
    const char* const source = world().inside(from + at, length, context, &error);
    if (error != CUDA_SUCCESS) return error;
    queue(context, [=] { std::memcpy(target, source, length); });
    at += length;
  }
  return CUDA_SUCCESS;
}

}  // namespace

FAKE CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream) {
  ENTER("cuMemcpyDtoHAsync")
  return copy_later(reinterpret_cast<Address>(to), from, bytes);
}
FAKE CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream) {
  ENTER("cuMemcpyHtoDAsync")
  return copy_later(to, reinterpret_cast<Address>(from), bytes);
}
FAKE CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
  ENTER("cuMemcpyDtoDAsync")
  return copy_later(to, from, bytes);
}
FAKE CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  ENTER("cuMemcpyDtoH")
  const CUresult error = copy_later(reinterpret_cast<Address>(to), from, bytes);
  if (error == CUDA_SUCCESS) drain(current(), current()->queued);
  return error;
}
FAKE CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  ENTER("cuMemcpyHtoD")
  const CUresult error = copy_later(to, reinterpret_cast<Address>(from), bytes);
  if (error == CUDA_SUCCESS) drain(current(), current()->queued);
  return error;
}
FAKE CUresult cuStreamSynchronize(CUstream) {
  ENTER("cuStreamSynchronize")
  if (!alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
  drain(current(), current()->queued);
  return CUDA_SUCCESS;
}
// Streams are but names: all work of a context is done in the order in which it was given.
FAKE CUresult cuStreamCreate(CUstream* stream, unsigned) {
  ENTER("cuStreamCreate")
  *stream = reinterpret_cast<CUstream>(world().next_id++ << 8);
  return CUDA_SUCCESS;
}
FAKE CUresult cuStreamDestroy_v2(CUstream) {
  ENTER("cuStreamDestroy")
  return CUDA_SUCCESS;
}
FAKE CUresult cuEventCreate(CUevent* event, unsigned) {
  ENTER("cuEventCreate")
  *event = new CUevent_st;
  return CUDA_SUCCESS;
}
FAKE CUresult cuEventRecord(CUevent event, CUstream) {
  ENTER("cuEventRecord")
  *event = {current(), current()->queued};
  return CUDA_SUCCESS;
}
FAKE CUresult cuEventSynchronize(CUevent event) {
  ENTER("cuEventSynchronize")
  if (event->context != nullptr) drain(event->context, event->at);
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
