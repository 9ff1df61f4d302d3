// See fake_cuda.h: a test double of the driver, not a driver.
#include "fake_cuda.h"

#include <cuda.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#define FAKE extern "C" __attribute__((visibility("default")))

namespace {

using Address = std::uintptr_t;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kMapped = std::size_t{2} << 20;  // granularity of mapped memory

// Memory that has a face for the host and one for the double.
struct Pages {
  explicit Pages(std::size_t wanted) : bytes((wanted + kPage - 1) / kPage * kPage) {
    const int file = memfd_create("fake GPU memory", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) std::abort();
    fd = file;
    inside = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() {
    munmap(inside, bytes);
    close(fd);
  }
  Address show(void* at, int protection) const {
    return reinterpret_cast<Address>(
        mmap(at, bytes, protection, MAP_SHARED | (at != nullptr ? MAP_FIXED : 0), fd, 0));
  }
  std::size_t bytes;
  int fd = -1;
  char* inside = nullptr;
};

enum class Sort { device, managed, pool, mapped, host, registered };

struct Memory {
  Sort sort;
  std::shared_ptr<Pages> pages;  // null: the host's own
  std::size_t bytes;
  CUcontext context;
  int device;
  unsigned long long id;
  CUmemGenericAllocationHandle handle;
};

}  // namespace

struct CUctx_st {
  int device;
  bool primary;
  int retained = 0;
  bool dead = false;
  std::deque<std::function<void()>> queue;
  unsigned long long queued = 0;
  unsigned long long done = 0;
};
struct CUevent_st {
  CUcontext context = nullptr;
  unsigned long long at = 0;
};

namespace {

struct World {
  std::recursive_mutex mutex;
  int process = 0;  // in which cuInit was called
  int devices = 2;
  std::map<std::string, int> calls;
  std::map<std::string, std::pair<int, int>> failures;
  std::string lacking;
  std::map<Address, Memory> memory;
  std::map<Address, std::size_t> reserved;
  std::map<CUmemGenericAllocationHandle, std::pair<std::shared_ptr<Pages>, int>> handles;
  std::vector<std::unique_ptr<CUctx_st>> contexts;
  std::map<int, CUcontext> primaries;
  unsigned long long next_id = 1;

  World() {
    if (const char* n = std::getenv("FAKE_CUDA_DEVICES")) devices = std::atoi(n);
    if (const char* name = std::getenv("FAKE_CUDA_LACKS")) lacking = name;
    const char* text = std::getenv("FAKE_CUDA_FAIL");
    std::istringstream list(text != nullptr ? text : "");
    for (std::string entry; std::getline(list, entry, ',');) {
      const std::size_t first = entry.find(':');
      const std::size_t second = entry.find(':', first + 1);
      failures[entry.substr(0, first)] = {std::atoi(entry.c_str() + first + 1),
                                          std::atoi(entry.c_str() + second + 1)};
    }
  }
  // Begins a call: an error that was asked for, or CUDA_SUCCESS.
  CUresult enter(const char* name, bool needs_init = true) {
    ++calls[name];
    const auto failure = failures.find(name);
    if (failure != failures.end() && failure->second.second > 0) {
      --failure->second.second;
      return static_cast<CUresult>(failure->second.first);
    }
    return needs_init && process != getpid() ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
  }
  Memory* find(Address at, Address* begin = nullptr) {
    auto next = memory.upper_bound(at);
    if (next == memory.begin()) return nullptr;
    --next;
    if (at >= next->first + next->second.bytes) return nullptr;
    if (begin != nullptr) *begin = next->first;
    return &next->second;
  }
  // The double's face of device memory, or the host's own; null where `bytes` bytes are not there.
  char* inside(Address at, std::size_t bytes, CUcontext current, CUresult* error) {
    Address begin = 0;
    Memory* found = find(at, &begin);
    if (found == nullptr || found->sort == Sort::registered) return reinterpret_cast<char*>(at);
    if (at + bytes > begin + found->bytes && found->sort != Sort::mapped) {
      *error = CUDA_ERROR_INVALID_VALUE;
      return nullptr;
    }
    if (found->sort == Sort::device && found->context != current) {
      *error = CUDA_ERROR_INVALID_CONTEXT;
      return nullptr;
    }
    return found->pages->inside + (at - begin);
  }
};

World& world() {
  static World* const one = new World;
  return *one;
}
thread_local std::vector<CUcontext> stack;

CUcontext current() {
  return stack.empty() ? nullptr : stack.back();
}

bool alive(CUcontext context) {
  return context != nullptr &&
         std::any_of(world().contexts.begin(), world().contexts.end(),
                     [&](const auto& one) { return one.get() == context && !one->dead; });
}

void drain(CUcontext context, unsigned long long until) {
  while (context->done < until) {
    const auto work = std::move(context->queue.front());
    context->queue.pop_front();
    ++context->done;
    work();
  }
}

void queue(CUcontext context, std::function<void()> work) {
  context->queue.push_back(std::move(work));
  ++context->queued;
}

Address add(Sort sort, std::size_t bytes, CUcontext context, int device) {
  auto pages = std::make_shared<Pages>(bytes);
  const bool shown = sort == Sort::managed || sort == Sort::host;
  const Address at = pages->show(nullptr, shown ? PROT_READ | PROT_WRITE : PROT_NONE);
  world().memory[at] = {sort, pages, bytes, context, device, world().next_id++, 0};
  return at;
}

CUresult drop(Address at) {
  const auto found = world().memory.find(at);
  if (found == world().memory.end()) return CUDA_ERROR_INVALID_VALUE;
  if (found->second.pages) munmap(reinterpret_cast<void*>(at), found->second.pages->bytes);
  world().memory.erase(found);
  return CUDA_SUCCESS;
}

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

#define ENTER(name)                          \
  const std::lock_guard lock(world().mutex); \
  if (const CUresult entered = world().enter(name); entered != CUDA_SUCCESS) return entered;

}  // namespace

// ---- What tests ask

FAKE int fake_cuda_calls(const char* name) {
  const std::lock_guard lock(world().mutex);
  return world().calls[name];
}
FAKE void fake_cuda_fail(const char* name, int error, int times) {
  const std::lock_guard lock(world().mutex);
  world().failures[name] = {error, times};
}
FAKE void fake_cuda_write_later(void* memory, const void* from, size_t bytes) {
  const std::lock_guard lock(world().mutex);
  Address begin = 0;
  const auto at = reinterpret_cast<Address>(memory);
  const Memory* found = world().find(at, &begin);
  const CUcontext context = found->context != nullptr ? found->context : world().primaries.at(found->device);
  const std::string data(static_cast<const char*>(from), bytes);
  char* const to = found->pages->inside + (at - begin);
  queue(context, [=] { std::copy(data.begin(), data.end(), to); });
}
FAKE int fake_cuda_registered(void) {
  const std::lock_guard lock(world().mutex);
  return static_cast<int>(std::count_if(world().memory.begin(), world().memory.end(),
                                        [](const auto& one) { return one.second.sort == Sort::registered; }));
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
FAKE CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : 0;
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
  stack.push_back(*context);
  return CUDA_SUCCESS;
}
FAKE CUresult cuCtxDestroy_v2(CUcontext context) {
  ENTER("cuCtxDestroy")
  if (!alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  context->dead = true;
  std::vector<Address> lost;
  for (const auto& [at, memory] : world().memory) {
    if (memory.context == context) lost.push_back(at);
  }
  for (const Address at : lost)
    drop(at);
  if (current() == context) stack.pop_back();
  return CUDA_SUCCESS;
}
FAKE CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  ENTER("cuDevicePrimaryCtxRetain")
  if (device < 0 || device >= world().devices) return CUDA_ERROR_INVALID_DEVICE;
  CUcontext& primary = world().primaries[device];
  if (primary == nullptr) {
    world().contexts.push_back(std::make_unique<CUctx_st>());
    primary = world().contexts.back().get();
    primary->device = device;
    primary->primary = true;
  }
  ++primary->retained;
  *context = primary;
  return CUDA_SUCCESS;
}
FAKE CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  ENTER("cuDevicePrimaryCtxRelease")
  --world().primaries.at(device)->retained;
  return CUDA_SUCCESS;
}
FAKE CUresult cuCtxGetCurrent(CUcontext* context) {
  ENTER("cuCtxGetCurrent")
  *context = current();
  return CUDA_SUCCESS;
}
FAKE CUresult cuCtxSetCurrent(CUcontext context) {
  ENTER("cuCtxSetCurrent")
  if (!stack.empty()) stack.pop_back();
  if (context != nullptr) stack.push_back(context);
  return CUDA_SUCCESS;
}
FAKE CUresult cuCtxPushCurrent_v2(CUcontext context) {
  ENTER("cuCtxPushCurrent")
  if (!alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  stack.push_back(context);
  return CUDA_SUCCESS;
}
FAKE CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  ENTER("cuCtxPopCurrent")
  *context = current();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  stack.pop_back();
  return CUDA_SUCCESS;
}

FAKE CUresult cuMemAlloc_v2(CUdeviceptr* at, size_t bytes) {
  ENTER("cuMemAlloc")
  if (!alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
  *at = add(Sort::device, bytes, current(), current()->device);
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemFree_v2(CUdeviceptr at) {
  ENTER("cuMemFree")
  return drop(at);
}
FAKE CUresult cuMemAllocManaged(CUdeviceptr* at, size_t bytes, unsigned) {
  ENTER("cuMemAllocManaged")
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
  ENTER("cuMemHostAlloc")
  *at = reinterpret_cast<void*>(add(Sort::host, bytes, current(), current()->device));
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemFreeHost(void* at) {
  ENTER("cuMemFreeHost")
  return drop(reinterpret_cast<Address>(at));
}
FAKE CUresult cuMemHostRegister_v2(void* at, size_t bytes, unsigned) {
  ENTER("cuMemHostRegister")
  if (!alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
  world().memory[reinterpret_cast<Address>(at)] = {Sort::registered,  nullptr,           bytes, current(),
                                                   current()->device, world().next_id++, 0};
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemHostUnregister(void* at) {
  ENTER("cuMemHostUnregister")
  const Memory* found = world().find(reinterpret_cast<Address>(at));
  if (found == nullptr || found->sort != Sort::registered) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  return drop(reinterpret_cast<Address>(at));
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
  world().reserved[*at] = bytes;
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t, CUmemGenericAllocationHandle handle,
                       unsigned long long) {
  ENTER("cuMemMap")
  const auto& [pages, device] = world().handles.at(handle);
  pages->show(reinterpret_cast<void*>(at), PROT_NONE);
  world().memory[at] = {Sort::mapped, pages, bytes, nullptr, device, world().next_id++, handle};
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
  world().memory.erase(at);
  return done ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}
FAKE CUresult cuMemRelease(CUmemGenericAllocationHandle) {
  ENTER("cuMemRelease")
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* at) {
  ENTER("cuMemRetainAllocationHandle")
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

FAKE CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* names, void** values,
                                     CUdeviceptr at) {
  ENTER("cuPointerGetAttributes")
  Address begin = 0;
  const Memory* found = world().find(at, &begin);
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
        *static_cast<size_t*>(values[i]) = found != nullptr ? found->bytes : 0;
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

FAKE CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream) {
  ENTER("cuMemcpyDtoHAsync")
  return copy_later(reinterpret_cast<Address>(to), from, bytes);
}
FAKE CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream) {
  ENTER("cuMemcpyHtoDAsync")
  return copy_later(to, reinterpret_cast<Address>(from), bytes);
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
FAKE CUresult cuEventDestroy_v2(CUevent event) {
  ENTER("cuEventDestroy")
  delete event;
  return CUDA_SUCCESS;
}

// ---- How they are found

#define ENTRY(name, function) \
  { #name, reinterpret_cast < void*>(function) }
FAKE CUresult cuGetProcAddress_v2(const char* name, void** function, int, cuuint64_t,
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
      ENTRY(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId),
      ENTRY(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain),
      {"cuDevicePrimaryCtxRelease", reinterpret_cast<void*>(cuDevicePrimaryCtxRelease_v2)},
      ENTRY(cuCtxGetCurrent, cuCtxGetCurrent),
      {"cuCtxPushCurrent", reinterpret_cast<void*>(cuCtxPushCurrent_v2)},
      {"cuCtxPopCurrent", reinterpret_cast<void*>(cuCtxPopCurrent_v2)},
      ENTRY(cuPointerGetAttributes, cuPointerGetAttributes),
      ENTRY(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle),
      ENTRY(cuMemRelease, cuMemRelease),
      ENTRY(cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle),
      {"cuMemHostRegister", reinterpret_cast<void*>(cuMemHostRegister_v2)},
      ENTRY(cuMemHostUnregister, cuMemHostUnregister),
      {"cuMemcpyDtoHAsync", reinterpret_cast<void*>(cuMemcpyDtoHAsync_v2)},
      {"cuMemcpyHtoDAsync", reinterpret_cast<void*>(cuMemcpyHtoDAsync_v2)},
      ENTRY(cuStreamSynchronize, cuStreamSynchronize),
      ENTRY(cuEventCreate, cuEventCreate),
      ENTRY(cuEventRecord, cuEventRecord),
      ENTRY(cuEventSynchronize, cuEventSynchronize),
      {"cuEventDestroy", reinterpret_cast<void*>(cuEventDestroy_v2)}};
  const auto found = table.find(name);
  *function = nullptr;
  if (found == table.end() || world().lacking == name) return CUDA_ERROR_NOT_FOUND;
  *function = found->second;
  return CUDA_SUCCESS;
}
