// The functions of CUDA's driver that heddle calls, looked up at run time in the libcuda that the process has
// loaded: nothing is linked. For gpu/ alone.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <string>

#include "base/status.hpp"

namespace heddle::gpu {

// Every driver since CUDA 11.3 has them.
// (clang-format would indent it a little further each time.)
// clang-format off
#define HEDDLE_CUDA_FUNCTIONS(X) \
  X(Init, v2000) X(DriverGetVersion, v2020) X(GetErrorName, v6000) X(GetErrorString, v6000) \
  X(DeviceGetCount, v2000) X(DeviceGet, v2000) X(DeviceGetName, v2000) X(DeviceTotalMem, v3020) \
  X(DeviceGetAttribute, v2000) X(DeviceGetPCIBusId, v4010) X(DeviceGetP2PAttribute, v8000) X(DevicePrimaryCtxRetain, v7000) X(DevicePrimaryCtxRelease, v11000) X(DevicePrimaryCtxGetState, v7000) \
  X(CtxGetCurrent, v4000) X(CtxPushCurrent, v4000) X(CtxPopCurrent, v4000) \
  X(PointerGetAttributes, v7000) X(MemGetAddressRange, v3020) X(MemRetainAllocationHandle, v11000) X(MemRelease, v10020) \
  X(MemGetAllocationPropertiesFromHandle, v10020) X(MemHostRegister, v6050) X(MemHostUnregister, v4000) \
  X(MemcpyDtoHAsync, v3020) X(MemcpyHtoDAsync, v3020) X(StreamSynchronize, v2000) \
  X(EventCreate, v2000) X(EventRecord, v2000) X(EventQuery, v2000) X(EventSynchronize, v2000) X(EventDestroy, v4000) \
  X(CtxGetDevice, v2000) X(LaunchKernel, v4000) X(MemcpyDtoDAsync, v3020) X(MemAlloc, v3020) X(MemFree, v3020) X(MemAllocManaged, v6000) \
  X(StreamDestroy, v4000) X(StreamWaitEvent, v3020) X(CtxEnablePeerAccess, v4000) \
  X(IpcGetMemHandle, v4010) X(IpcOpenMemHandle, v11000) X(IpcCloseMemHandle, v4010) X(MemsetD8Async, v3020) \
  X(IpcGetEventHandle, v4010) X(IpcOpenEventHandle, v4010) X(StreamGetCtx, v9020) X(StreamIsCapturing, v10000) \
  X(StreamGetCaptureInfo, v11030) X(ThreadExchangeStreamCaptureMode, v10010) X(EventRecordWithFlags, v11010) X(MemHostGetDevicePointer, v3020) \
  X(StreamQuery, v2000) X(StreamCreateWithPriority, v5050) X(CtxGetStreamPriorityRange, v5050) X(Memcpy2DAsync, v3020) X(PointerSetAttribute, v6000) X(FlushGPUDirectRDMAWrites, v11030)
// Those of CUDA 12.0, for kernels and for contexts that are reset, and for graphs and networks, which take those two since CUDA 11.7, and that which tell when a graph is gone; null where the driver is older.
#define HEDDLE_CUDA_12_FUNCTIONS(X) X(LibraryLoadData, v12000) X(LibraryUnload, v12000) X(LibraryGetKernel, v12000) X(KernelGetFunction, v12000) X(CtxGetId, v12000) X(StreamBatchMemOp, v11070) X(MemGetHandleForAddressRange, v11070) \
  X(UserObjectCreate, v11030) X(UserObjectRelease, v11030) X(GraphRetainUserObject, v11030)
// clang-format on

// Without the "cu" that the names in cuda.h begin with: some of those are macros.
struct Driver {
#define HEDDLE_MEMBER(name, version) PFN_cu##name##_##version name = nullptr;
  HEDDLE_CUDA_FUNCTIONS(HEDDLE_MEMBER)
  HEDDLE_CUDA_12_FUNCTIONS(HEDDLE_MEMBER)
#undef HEDDLE_MEMBER
  // Of CUDA 12.4, whose headers nobody needs; null where the driver is older.
  CUresult (*FuncLoad)(CUfunction function) = nullptr;
};

// `library` is dlopen's handle of libcuda. `unsupported` says what a driver lacks.
Result<Driver> load_driver(void* library);

// "CUDA_ERROR_INVALID_VALUE (1: invalid argument)".
std::string error_text(const Driver& driver, CUresult error);
// Whether it says that a stream is being captured.
bool is_of_capture(CUresult error);
// "<what>: <error_text>".
Status cuda_error(const Driver& driver, CUresult error, const std::string& what);

// The legacy default stream: what runs there waits for the work that any blocking stream of the context was
// given before.
inline CUstream default_stream() {
  return CU_STREAM_LEGACY;
}

}  // namespace heddle::gpu
