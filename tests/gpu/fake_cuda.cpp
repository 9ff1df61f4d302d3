// See fake_cuda.h: a test double of the driver, not a driver. Here: what tests ask, devices, contexts, and
// how functions are found.
#include "fake_cuda.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "fake_world.hpp"

using namespace fake;

// ---- What tests ask

FAKE int fake_cuda_calls(const char* name) {
  const std::lock_guard lock(world().mutex);
  return world().calls[name];
}
FAKE size_t fake_cuda_bytes(const char* name) {
  const std::lock_guard lock(world().mutex);
  return world().copied[name];
}
FAKE void fake_cuda_fail(const char* name, int error, int times) {
  const std::lock_guard lock(world().mutex);
  world().failures[name] = {error, times};
}
FAKE void fake_cuda_fail_after(const char* name, int calls, int error) {
  const std::lock_guard lock(world().mutex);
  world().failures[name] = {error, 1, calls};
}
FAKE void fake_cuda_write_later(void* memory, const void* from, size_t bytes) {
  const std::lock_guard lock(world().mutex);
  Address begin = 0;
  const auto at = reinterpret_cast<Address>(memory);
  const Memory* found = world().find(at, &begin);
  const CUcontext context = found->context != nullptr ? found->context : world().primaries.at(found->device);
  const std::string data(static_cast<const char*>(from), bytes);
  char* const to = found->inside + (at - begin);
  give(*context->queue, [=] {
    std::copy(data.begin(), data.end(), to);
    return true;
  });
}
namespace {
int count_of(Sort sort) {
  const std::lock_guard lock(world().mutex);
  return static_cast<int>(std::count_if(world().memory.begin(), world().memory.end(),
                                        [sort](const auto& one) { return one.second.sort == sort; }));
}
}  // namespace
FAKE int fake_cuda_registered(void) {
  return count_of(Sort::registered);
}
FAKE int fake_cuda_allocated(void) {
  return count_of(Sort::device);
}

// ---- The driver's functions

FAKE CUresult cuInit(unsigned) {
  const std::lock_guard lock(world().mutex);
  if (const CUresult entered = world().enter("cuInit", false); entered != CUDA_SUCCESS) return entered;
  if (world().process != 0 && world().process != getpid()) return CUDA_ERROR_NOT_INITIALIZED;
  world().process = getpid();
  return CUDA_SUCCESS;
}
FAKE CUresult cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}
FAKE CUresult cuGetErrorName(CUresult error, const char** text) {
  static const std::map<CUresult, const char*> names = {
      {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
      {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
      {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
      {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
      {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
      {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
      {CUDA_ERROR_MAP_FAILED, "CUDA_ERROR_MAP_FAILED"},
      {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
      {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
      {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"}};
  const auto found = names.find(error);
  *text = found != names.end() ? found->second : nullptr;
  return CUDA_SUCCESS;
}
FAKE CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "so says the double";
  return CUDA_SUCCESS;
}
FAKE CUresult cuDeviceGetCount(int* count) {
  ENTER("cuDeviceGetCount")
  *count = world().devices;
  return CUDA_SUCCESS;
}
FAKE CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  ENTER("cuDeviceGet")
  if (ordinal < 0 || ordinal >= world().devices) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}
FAKE CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
  std::snprintf(name, static_cast<size_t>(bytes), "double of a GPU, number %d", device);
  return CUDA_SUCCESS;
}
FAKE CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  *bytes = std::size_t{1} << 30;
  return CUDA_SUCCESS;
}
namespace {
int flag(const char* name) {
  return std::getenv(name) != nullptr ? 1 : 0;
}
}  // namespace
FAKE CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR    ? 9
           : attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT      ? world().multiprocessors
           : attribute == CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED         ? flag("FAKE_CUDA_DMABUF")
           : attribute == CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT       ? flag("FAKE_CUDA_RUN_LIMIT")
           : attribute == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED ? flag("FAKE_CUDA_GPU_DIRECT")
           : attribute == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS
               ? flag("FAKE_CUDA_NO_FLUSH") == 0 ? CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST : 0
               : 0;
  return CUDA_SUCCESS;
}
FAKE CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice from,
                                      CUdevice to) {
  if (from == to) return CUDA_ERROR_INVALID_DEVICE;
  const bool reach = world().has_peers;
  // As over a bus.
  *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED          ? static_cast<int>(reach)
           : attribute == CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK        ? 1
           : attribute == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED ? flag("FAKE_CUDA_NVLINK")
                                                                          : 0;
  return CUDA_SUCCESS;
}
FAKE CUresult cuDeviceGetPCIBusId(char* text, int bytes, CUdevice device) {
  std::snprintf(text, static_cast<size_t>(bytes), "0000:%02x:00.0", device);
  return CUDA_SUCCESS;
}

FAKE CUresult cuCtxCreate_v2(CUcontext* context, unsigned, CUdevice device) {
  ENTER("cuCtxCreate")
  world().contexts.push_back(std::make_unique<CUctx_st>());
  *context = world().contexts.back().get();
  (*context)->device = device;
  (*context)->primary = false;
  (*context)->id = world().next_id++;
  stack().push_back(*context);
  return CUDA_SUCCESS;
}
namespace {
// What is in a context goes with it.
void lose_all(CUcontext context) {
  context->dead = true;
  std::map<Address, Place> lost;
  for (const auto& [at, memory] : world().memory) {
    if (memory.context == context) lost[at] = memory.sort == Sort::device ? Place::kept : Place::freed;
  }
  for (const auto& [at, place] : lost)
    drop(at, place);
  std::erase_if(world().events, [&](const auto& one) {
    if (one.second == context) delete one.first;
    return one.second == context;
  });
  std::erase_if(world().streams, [&](CUstream one) {
    const bool goes = one->context == context;
    if (goes) delete one;
    return goes;
  });
}
}  // namespace

FAKE CUresult cuCtxDestroy_v2(CUcontext context) {
  ENTER("cuCtxDestroy")
  if (!alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  lose_all(context);
  if (current() == context) stack().pop_back();
  return CUDA_SUCCESS;
}
// It is there again, empty, once somebody retains it anew; whoever has its handle has the new one's.
FAKE CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  ENTER("cuDevicePrimaryCtxReset")
  const auto found = world().primaries.find(device);
  if (found != world().primaries.end()) lose_all(found->second);
  return CUDA_SUCCESS;
}
FAKE CUresult cuCtxGetId(CUcontext context, unsigned long long* id) {
  ENTER("cuCtxGetId")
  if (context == nullptr) context = current();
  if (!alive(context) && context != nullptr && context->primary && context->retained == 0) {
    std::fprintf(stderr, "the double of CUDA: a context is asked about that nobody keeps\n");
    std::abort();
  }
  if (!alive(context)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *id = context->id;
  return CUDA_SUCCESS;
}
FAKE CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  ENTER_UNSAFE("cuDevicePrimaryCtxRetain")
  if (device < 0 || device >= world().devices) return CUDA_ERROR_INVALID_DEVICE;
  CUcontext& primary = world().primaries[device];
  if (primary == nullptr) {
    world().contexts.push_back(std::make_unique<CUctx_st>());
    primary = world().contexts.back().get();
    primary->device = device;
    primary->primary = true;
    primary->dead = true;
  }
  if (primary->dead) {
    primary->dead = false;
    primary->id = world().next_id++;
    primary->queue = make_queue();
    primary->peers.clear();
  }
  ++primary->retained;
  *context = primary;
  return CUDA_SUCCESS;
}
FAKE CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  ENTER_UNSAFE("cuDevicePrimaryCtxRelease")
  CUcontext primary = world().primaries.at(device);
  if (--primary->retained == 0) lose_all(primary);
  return CUDA_SUCCESS;
}
FAKE void fake_cuda_release_primary(int device) {
  const std::lock_guard lock(world().mutex);
  const auto found = world().primaries.find(device);
  if (found == world().primaries.end()) return;
  found->second->retained = 0;
  lose_all(found->second);
}
FAKE CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  ENTER_UNSAFE("cuDevicePrimaryCtxGetState")
  const auto found = world().primaries.find(device);
  *flags = 0;
  *active = found != world().primaries.end() && !found->second->dead ? 1 : 0;
  return CUDA_SUCCESS;
}
FAKE CUresult cuCtxGetCurrent(CUcontext* context) {
  ENTER("cuCtxGetCurrent")
  *context = current();
  return CUDA_SUCCESS;
}
FAKE CUresult cuCtxSetCurrent(CUcontext context) {
  ENTER("cuCtxSetCurrent")
  if (!stack().empty()) stack().pop_back();
  if (context != nullptr) stack().push_back(context);
  return CUDA_SUCCESS;
}
FAKE CUresult cuCtxGetDevice(CUdevice* device) {
  ENTER("cuCtxGetDevice")
  if (!alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
  *device = current()->device;
  return CUDA_SUCCESS;
}
FAKE CUresult cuCtxPushCurrent_v2(CUcontext context) {
  ENTER("cuCtxPushCurrent")
  if (!alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  stack().push_back(context);
  return CUDA_SUCCESS;
}
FAKE CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  ENTER("cuCtxPopCurrent")
  *context = current();
  if (stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  stack().pop_back();
  return CUDA_SUCCESS;
}

// ---- How they are found

#define ENTRY(name, function) \
  { #name, reinterpret_cast < void*>(function) }
FAKE CUresult cuGetProcAddress_v2(const char* name, void** function, int version, cuuint64_t,
                                  CUdriverProcAddressQueryResult*) {
  // The names of cuda.h are macros here and there; these are the driver's.
  static const std::map<std::string, void*> table = {
      ENTRY(cuInit, cuInit),
      ENTRY(cuDriverGetVersion, cuDriverGetVersion),
      ENTRY(cuGetErrorName, cuGetErrorName),
      ENTRY(cuGetErrorString, cuGetErrorString),
      ENTRY(cuDeviceGetCount, cuDeviceGetCount),
      ENTRY(cuDeviceGet, cuDeviceGet),
      ENTRY(cuDeviceGetName, cuDeviceGetName),
      {"cuDeviceTotalMem", reinterpret_cast<void*>(cuDeviceTotalMem_v2)},
      ENTRY(cuDeviceGetAttribute, cuDeviceGetAttribute),
      ENTRY(cuDeviceGetP2PAttribute, cuDeviceGetP2PAttribute),
      ENTRY(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId),
      ENTRY(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain),
      {"cuDevicePrimaryCtxRelease", reinterpret_cast<void*>(cuDevicePrimaryCtxRelease_v2)},
      ENTRY(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState),
      ENTRY(cuCtxGetCurrent, cuCtxGetCurrent),
      {"cuCtxPushCurrent", reinterpret_cast<void*>(cuCtxPushCurrent_v2)},
      {"cuCtxPopCurrent", reinterpret_cast<void*>(cuCtxPopCurrent_v2)},
      ENTRY(cuPointerGetAttributes, cuPointerGetAttributes),
      {"cuMemGetAddressRange", reinterpret_cast<void*>(cuMemGetAddressRange_v2)},
      ENTRY(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle),
      ENTRY(cuMemRelease, cuMemRelease),
      ENTRY(cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle),
      {"cuMemHostRegister", reinterpret_cast<void*>(cuMemHostRegister_v2)},
      ENTRY(cuMemHostUnregister, cuMemHostUnregister),
      {"cuMemcpyDtoHAsync", reinterpret_cast<void*>(cuMemcpyDtoHAsync_v2)},
      {"cuMemcpyHtoDAsync", reinterpret_cast<void*>(cuMemcpyHtoDAsync_v2)},
      ENTRY(cuStreamSynchronize, cuStreamSynchronize),
      ENTRY(cuStreamQuery, cuStreamQuery),
      ENTRY(cuCtxGetDevice, cuCtxGetDevice),
      ENTRY(cuCtxGetId, cuCtxGetId),
      ENTRY(cuLibraryLoadData, cuLibraryLoadData),
      ENTRY(cuLibraryUnload, cuLibraryUnload),
      ENTRY(cuLibraryGetKernel, cuLibraryGetKernel),
      ENTRY(cuKernelGetFunction, cuKernelGetFunction),
      ENTRY(cuFuncLoad, cuFuncLoad),
      ENTRY(cuLaunchKernel, cuLaunchKernel),
      ENTRY(cuStreamCreate, cuStreamCreate),
      ENTRY(cuStreamCreateWithPriority, cuStreamCreateWithPriority),
      ENTRY(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange),
      {"cuStreamDestroy", reinterpret_cast<void*>(cuStreamDestroy_v2)},
      ENTRY(cuStreamWaitEvent, cuStreamWaitEvent),
      ENTRY(cuStreamGetCtx, cuStreamGetCtx),
      ENTRY(cuStreamIsCapturing, cuStreamIsCapturing),
      {"cuStreamGetCaptureInfo", reinterpret_cast<void*>(cuStreamGetCaptureInfo_v2)},
      ENTRY(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode),
      {"cuStreamBatchMemOp", reinterpret_cast<void*>(cuStreamBatchMemOp_v2)},
      {"cuMemHostGetDevicePointer", reinterpret_cast<void*>(cuMemHostGetDevicePointer_v2)},
      ENTRY(cuEventRecordWithFlags, cuEventRecordWithFlags),
      ENTRY(cuUserObjectCreate, cuUserObjectCreate),
      ENTRY(cuUserObjectRelease, cuUserObjectRelease),
      ENTRY(cuGraphRetainUserObject, cuGraphRetainUserObject),
      ENTRY(cuIpcGetEventHandle, cuIpcGetEventHandle),
      ENTRY(cuIpcOpenEventHandle, cuIpcOpenEventHandle),
      {"cuMemcpyDtoDAsync", reinterpret_cast<void*>(cuMemcpyDtoDAsync_v2)},
      {"cuMemcpy2DAsync", reinterpret_cast<void*>(cuMemcpy2DAsync_v2)},
      ENTRY(cuPointerSetAttribute, cuPointerSetAttribute),
      ENTRY(cuFlushGPUDirectRDMAWrites, cuFlushGPUDirectRDMAWrites),
      ENTRY(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange),
      {"cuMemsetD8Async", reinterpret_cast<void*>(cuMemsetD8Async)},
      {"cuMemAlloc", reinterpret_cast<void*>(cuMemAlloc_v2)},
      ENTRY(cuMemAllocManaged, cuMemAllocManaged),
      {"cuMemFree", reinterpret_cast<void*>(cuMemFree_v2)},
      ENTRY(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess),
      ENTRY(cuIpcGetMemHandle, cuIpcGetMemHandle),
      {"cuIpcOpenMemHandle", reinterpret_cast<void*>(cuIpcOpenMemHandle_v2)},
      ENTRY(cuIpcCloseMemHandle, cuIpcCloseMemHandle),
      ENTRY(cuEventCreate, cuEventCreate),
      ENTRY(cuEventRecord, cuEventRecord),
      ENTRY(cuEventQuery, cuEventQuery),
      ENTRY(cuEventSynchronize, cuEventSynchronize),
      {"cuEventDestroy", reinterpret_cast<void*>(cuEventDestroy_v2)}};
  const auto found = table.find(name);
  *function = nullptr;
  // A function is not found by those who ask for an older CUDA than it came with.
  if (version < 12000 && std::string(name).starts_with("cuLibrary")) return CUDA_ERROR_NOT_FOUND;
  if (version < 12000 && std::string(name) == "cuKernelGetFunction") return CUDA_ERROR_NOT_FOUND;
  if (version < 12000 && std::string(name) == "cuCtxGetId") return CUDA_ERROR_NOT_FOUND;
  if (version < 12040 && std::string(name) == "cuFuncLoad") return CUDA_ERROR_NOT_FOUND;
  if (version < 11070 && std::string(name) == "cuStreamBatchMemOp") return CUDA_ERROR_NOT_FOUND;
  if (version < 11070 && std::string(name) == "cuMemGetHandleForAddressRange") return CUDA_ERROR_NOT_FOUND;
  if (found == table.end() || world().lacking == name) return CUDA_ERROR_NOT_FOUND;
  *function = found->second;
  return CUDA_SUCCESS;
}
