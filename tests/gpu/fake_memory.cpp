// The double's memory (fake_cuda.h): allocations, mappings, and what is said of a pointer.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "fake_world.hpp"

using namespace fake;

FAKE CUresult cuMemAlloc_v2(CUdeviceptr* at, size_t bytes) {
  ENTER_UNSAFE("cuMemAlloc")
  if (!alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  *at = add(Sort::device, bytes, current(), current()->device);
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemFree_v2(CUdeviceptr at) {
  come_to_context();
  ENTER_UNSAFE("cuMemFree")
  // The driver waits for its own context alone.
  const auto found = world().memory.find(at);
  if (found != world().memory.end() && found->second.pages != nullptr && found->second.pages->kernels != 0) {
    std::fprintf(stderr, "the double of CUDA: memory is freed that a kernel of another context uses\n");
    std::abort();
  }
  return drop(at);
}
FAKE CUresult cuMemAllocManaged(CUdeviceptr* at, size_t bytes, unsigned) {
  ENTER_UNSAFE("cuMemAllocManaged")
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  *at = add(Sort::managed, bytes, current(), current()->device);
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemAllocAsync(CUdeviceptr* at, size_t bytes, CUstream) {
  ENTER("cuMemAllocAsync")
  *at = add(Sort::pool, bytes, nullptr, current()->device);
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemFreeAsync(CUdeviceptr at, CUstream) {
  ENTER("cuMemFreeAsync")
  return drop(at);
}
FAKE CUresult cuMemHostAlloc(void** at, size_t bytes, unsigned) {
  ENTER_UNSAFE("cuMemHostAlloc")
  *at = reinterpret_cast<void*>(add(Sort::host, bytes, current(), current()->device));
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemFreeHost(void* at) {
  come_to_context();
  ENTER_UNSAFE("cuMemFreeHost")
  return drop(reinterpret_cast<Address>(at));
}
namespace {
// Whether a process that is forked gets pages of its own for it: then what either writes first goes where the
// GPU does not look.
bool is_copied_by_fork(Address at) {
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    Address begin = 0;
    Address end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) here = begin <= at && at < end;
    if (here && line.starts_with("VmFlags:"))
      return line.find(" sh") == std::string::npos && line.find(" dc") == std::string::npos;
  }
  return false;
}
}  // namespace

// Pages are what is registered, each of them once.
FAKE CUresult cuMemHostRegister_v2(void* at, size_t bytes, unsigned) {
  ENTER_UNSAFE("cuMemHostRegister")
  if (!alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const Address first = reinterpret_cast<Address>(at) / kPage;
  const Address last = (reinterpret_cast<Address>(at) + bytes - 1) / kPage;
  for (const auto& [begin, one] : world().memory) {
    const bool is_apart = (begin + one.bytes - 1) / kPage < first || begin / kPage > last;
    if (one.sort == Sort::registered && !is_apart) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  if (std::getenv("FAKE_CUDA_FORKS") != nullptr && is_copied_by_fork(reinterpret_cast<Address>(at)))
    ++world().calls["memory that a fork copies"];
  world().memory[reinterpret_cast<Address>(at)] = {Sort::registered,  nullptr,           bytes, current(),
                                                   current()->device, world().next_id++, 0,     nullptr};
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemHostUnregister(void* at) {
  come_to_context();
  ENTER_UNSAFE("cuMemHostUnregister")
  const Memory* found = world().find(reinterpret_cast<Address>(at));
  if (found == nullptr || found->sort != Sort::registered) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  return drop(reinterpret_cast<Address>(at));
}
FAKE CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* at, void* host, unsigned flags) {
  ENTER("cuMemHostGetDevicePointer")
  const Memory* found = world().find(reinterpret_cast<Address>(host));
  const bool known = found != nullptr && (found->sort == Sort::host || found->sort == Sort::registered);
  if (!known || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *at = reinterpret_cast<Address>(host);
  return CUDA_SUCCESS;
}

FAKE CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* of,
                          unsigned long long) {
  ENTER("cuMemCreate")
  if (bytes % kMapped != 0) return CUDA_ERROR_INVALID_VALUE;
  *handle = world().next_id++;
  world().handles[*handle] = {std::make_shared<Pages>(bytes), of->location.id};
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemAddressReserve(CUdeviceptr* at, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  ENTER("cuMemAddressReserve")
  void* const place = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *at = reinterpret_cast<Address>(place);
  void* const inside = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  world().reserved[*at] = {bytes, static_cast<char*>(inside)};
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t, CUmemGenericAllocationHandle handle,
                       unsigned long long) {
  ENTER("cuMemMap")
  const auto& [pages, device] = world().handles.at(handle);
  const auto& [base, range] = *--world().reserved.upper_bound(at);
  char* const inside = range.second + (at - base);
  pages->show(reinterpret_cast<void*>(at), PROT_NONE);
  pages->show(inside, PROT_READ | PROT_WRITE);
  world().memory[at] = {Sort::mapped, pages, bytes, nullptr, device, world().next_id++, handle, inside};
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
  ENTER("cuMemSetAccess")
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
  ENTER("cuMemUnmap")
  void* const place = reinterpret_cast<void*>(at);
  const bool done = mmap(place, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == place;
  if (const Memory* found = world().find(at))
    static_cast<void>(mmap(found->inside, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
  world().memory.erase(at);
  return done ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}
FAKE CUresult cuMemRelease(CUmemGenericAllocationHandle) {
  ENTER("cuMemRelease")
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* at) {
  ENTER_UNSAFE("cuMemRetainAllocationHandle")
  const Memory* found = world().find(reinterpret_cast<Address>(at));
  if (found == nullptr || found->sort != Sort::mapped) return CUDA_ERROR_INVALID_VALUE;
  *handle = found->handle;
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* of,
                                                     CUmemGenericAllocationHandle handle) {
  ENTER("cuMemGetAllocationPropertiesFromHandle")
  *of = {};
  of->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  of->location.id = world().handles.at(handle).second;
  return CUDA_SUCCESS;
}

// The range of mapped memory is the one that was reserved, of which some may not be mapped, and some be
// another device's.
FAKE CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* names, void** values,
                                     CUdeviceptr at) {
  ENTER("cuPointerGetAttributes")
  Address begin = 0;
  const Memory* found = world().find(at, &begin);
  std::size_t bytes = found != nullptr ? found->bytes : 0;
  if (found != nullptr && found->sort == Sort::mapped) {
    const auto& [base, range] = *--world().reserved.upper_bound(at);
    begin = base;
    bytes = range.first;
  }
  const bool hosts = found != nullptr && (found->sort == Sort::host || found->sort == Sort::registered);
  for (unsigned i = 0; i < count; ++i) {
    switch (names[i]) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<CUmemorytype*>(values[i]) = found == nullptr ? CUmemorytype(0)
                                                 : hosts          ? CU_MEMORYTYPE_HOST
                                                                  : CU_MEMORYTYPE_DEVICE;
        break;
      case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *static_cast<unsigned long long*>(values[i]) = found != nullptr ? found->id : 0;
        break;
      case CU_POINTER_ATTRIBUTE_CONTEXT:
        *static_cast<CUcontext*>(values[i]) = found != nullptr ? found->context : nullptr;
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int*>(values[i]) = found != nullptr ? found->device : -2;
        break;
      case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *static_cast<int*>(values[i]) = found != nullptr && found->sort == Sort::managed;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<CUdeviceptr*>(values[i]) = begin;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *static_cast<size_t*>(values[i]) = bytes;
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

// Of mapped memory the mapping.
FAKE CUresult cuMemGetAddressRange_v2(CUdeviceptr* begin, size_t* bytes, CUdeviceptr at) {
  ENTER("cuMemGetAddressRange")
  Address first = 0;
  const Memory* found = world().find(at, &first);
  if (found == nullptr) return CUDA_ERROR_NOT_FOUND;
  *begin = first;
  *bytes = found->bytes;
  return CUDA_SUCCESS;
}

// ---- For networks

FAKE CUresult cuPointerSetAttribute(const void*, CUpointer_attribute attribute, CUdeviceptr at) {
  ENTER("cuPointerSetAttribute")
  const Memory* found = world().find(at);
  const bool right = attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && found != nullptr &&
                     found->sort == Sort::device && found->context == current();
  return right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
FAKE CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget,
                                         CUflushGPUDirectRDMAWritesScope scope) {
  ENTER("cuFlushGPUDirectRDMAWrites")
  if (!alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
  return scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
// The descriptor is the caller's.
FAKE CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr at, size_t bytes,
                                            CUmemRangeHandleType type, unsigned long long flags) {
  ENTER("cuMemGetHandleForAddressRange")
  if (std::getenv("FAKE_CUDA_DMABUF") == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const auto found = world().memory.find(at);
  const bool right = type == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD && flags == 0 && at % kPage == 0 &&
                     bytes % kPage == 0 && found != world().memory.end() &&
                     found->second.sort == Sort::device && bytes <= found->second.bytes;
  if (!right) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<int*>(handle) = dup(found->second.pages->fd);
  return CUDA_SUCCESS;
}

// ---- Between processes

namespace {

// What a handle says, in the double.
struct Ticket {
  int process;
  int fd;
  int device;
  std::size_t bytes;
};
static_assert(sizeof(Ticket) <= sizeof(CUipcMemHandle));

}  // namespace

FAKE CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr at) {
  ENTER("cuIpcGetMemHandle")
  const auto found = world().memory.find(at);
  if (found == world().memory.end() || found->second.sort != Sort::device) return CUDA_ERROR_INVALID_VALUE;
  const Memory& memory = found->second;
  const Ticket ticket = {getpid(), memory.pages->fd, memory.device, memory.bytes};
  *handle = {};
  std::memcpy(handle->reserved, &ticket, sizeof ticket);
  return CUDA_SUCCESS;
}
FAKE CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* at, CUipcMemHandle handle, unsigned flags) {
  ENTER_UNSAFE("cuIpcOpenMemHandle")
  if (!alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
  Ticket ticket = {};
  std::memcpy(&ticket, handle.reserved, sizeof ticket);
  // In the process that it comes from a handle leads nowhere.
  if (ticket.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  if (ticket.device != current()->device && !world().has_peers) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  auto pages = std::make_shared<Pages>(ticket.process, ticket.fd, ticket.bytes);
  if (pages->inside == nullptr) return CUDA_ERROR_MAP_FAILED;
  const bool is_dropped = world().drops_peer_writes || world().drops_peer_reads;
  if (is_dropped && ticket.device != current()->device) pages = pages->copy(!world().drops_peer_reads);
  ++pages->shared().open;
  *at = pages->show(nullptr, PROT_NONE);
  world().memory[*at] = {Sort::imported,    pages, ticket.bytes, current(), ticket.device,
                         world().next_id++, 0,     pages->inside};
  return CUDA_SUCCESS;
}
FAKE CUresult cuIpcCloseMemHandle(CUdeviceptr at) {
  come_to_context();
  ENTER_UNSAFE("cuIpcCloseMemHandle")
  const auto found = world().memory.find(at);
  if (found == world().memory.end() || found->second.sort != Sort::imported) return CUDA_ERROR_INVALID_VALUE;
  --found->second.pages->shared().open;
  return drop(at);
}
FAKE CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  ENTER_UNSAFE("cuCtxEnablePeerAccess")
  if (!alive(current()) || !alive(peer) || peer == current()) return CUDA_ERROR_INVALID_CONTEXT;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (peer->device == current()->device || !world().has_peers) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  return current()->peers.insert(peer).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}
