// Memory of every kind through the driver's own functions, for tests: the driver may be CUDA's or its double
// (fake_cuda.h).
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace heddle::test {

enum class Memory { host, pinned, device, managed, pool, mapped };
inline constexpr Memory kMemories[] = {Memory::host,    Memory::pinned, Memory::device,
                                       Memory::managed, Memory::pool,   Memory::mapped};
inline const char* memory_name(Memory memory) {
  static constexpr const char* kNames[] = {"host", "pinned", "device", "managed", "pool", "mapped"};
  return kNames[static_cast<int>(memory)];
}

// The driver, loaded by the test itself as a program that uses CUDA would load it.
class TestDriver {
 public:
  explicit TestDriver(const char* path) : library_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) stop("dlopen", dlerror());
    call<PFN_cuInit_v2000>("cuInit", 0U);
  }
  // The function of that name in the library; in the double, its own functions too.
  template <typename Function>
  Function find(const char* name) const {
    auto function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr) stop(name, "there is no such function");
    return function;
  }
  template <typename Function, typename... Arguments>
  void call(const char* name, Arguments... arguments) const {
    const auto error = static_cast<int>(find<Function>(name)(arguments...));
    if (error != 0) stop(name, std::to_string(error).c_str());
  }
  bool is_double() const { return dlsym(library_, "fake_cuda_calls") != nullptr; }
  int devices() const {
    int devices = 0;
    call<PFN_cuDeviceGetCount_v2000>("cuDeviceGetCount", &devices);
    return devices;
  }
  // How often a function was called, which the double alone counts; 0 of CUDA's own.
  int calls(const char* name) const {
    return is_double() ? find<int (*)(const char*)>("fake_cuda_calls")(name) : 0;
  }
  // Of the double alone: what a function's next call is to return.
  void fail(const char* name, CUresult error) const {
    find<void (*)(const char*, int, int)>("fake_cuda_fail")(name, error, 1);
  }
  // The one after so many others; or none any more.
  void fail_after(const char* name, int calls, CUresult error) const {
    find<void (*)(const char*, int, int)>("fake_cuda_fail_after")(name, calls, error);
  }
  void fail_no_more(const char* name) const {
    find<void (*)(const char*, int, int)>("fake_cuda_fail")(name, 0, 0);
  }
  CUcontext primary(int device) const {
    CUcontext context = nullptr;
    call<PFN_cuDevicePrimaryCtxRetain_v7000>("cuDevicePrimaryCtxRetain", &context, device);
    return context;
  }
  void set_current(CUcontext context) const { call<PFN_cuCtxSetCurrent_v4000>("cuCtxSetCurrent", context); }
  CUcontext current() const {
    CUcontext context = nullptr;
    call<PFN_cuCtxGetCurrent_v4000>("cuCtxGetCurrent", &context);
    return context;
  }
  // In the current context; there on return. The driver's own copy may be on its way yet, where streams that
  // do not synchronise with the default stream do not find it; what comes back was there.
  void put(CUdeviceptr to, const void* from, std::size_t bytes) const {
    char byte = 0;
    call<PFN_cuMemcpyHtoD_v3020>("cuMemcpyHtoD_v2", to, from, bytes);
    if (bytes > 0)
      call<PFN_cuMemcpyDtoH_v3020>("cuMemcpyDtoH_v2", static_cast<void*>(&byte), to, std::size_t{1});
  }

 private:
  [[noreturn]] static void stop(const char* what, const char* why) {
    std::fprintf(stderr, "%s: %s\n", what, why);
    std::abort();
  }
  void* library_;
};

// `bytes` bytes on `device`, counted round where there are fewer, in its primary context or, for what has
// none of its own, in none. The calling thread's current context is what it was.
class TestMemory {
 public:
  TestMemory(const TestDriver& driver, Memory memory, std::size_t bytes, int device = 0)
      : TestMemory(driver, memory, bytes, device, driver.primary(device % driver.devices())) {}
  TestMemory(const TestDriver& driver, Memory memory, std::size_t bytes, int device, CUcontext context)
      : driver_(driver),
        memory_(memory),
        bytes_(bytes),
        device_(device % driver.devices()),
        context_(context) {
    allocate();
  }
  TestMemory(const TestMemory&) = delete;
  TestMemory& operator=(const TestMemory&) = delete;
  ~TestMemory() { free(); }

  void free() {
    if (data_ == nullptr) return;
    if (memory_ == Memory::host) {
      std::free(data_);
      data_ = nullptr;
    } else {
      free_by_driver();
    }
  }

  // Frees it, and keeps everybody else from moving in: what was a device's leads nowhere. Until the end of
  // the process. The host's is no such memory. Another thread may have moved in before the place is held, and
  // is not driven out: other memory is lost then. Where every place is taken, the driver keeps what is freed,
  // as it does with ranges that were reserved.
  void* lose() {
    if (memory_ == Memory::host) return nullptr;
    void* address = nullptr;
    bool held = false;
    for (int tries = 0; tries < 16 && !held; ++tries) {
      if (data_ == nullptr) allocate();
      address = data_;
      free_by_driver();
      const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
      const std::size_t pages = (bytes_ + kPage - 1) / kPage * kPage;
      held = mmap(address, pages, PROT_NONE, flags, -1, 0) == address || memory_ == Memory::mapped;
    }
    return address;
  }
  // It went with its context.
  void forget() { data_ = nullptr; }

  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  // By the driver's copies, or the host's where it may.
  void put(const void* from, std::size_t bytes, std::size_t offset = 0) const {
    if (memory_ == Memory::host || memory_ == Memory::pinned) {
      std::memcpy(as<char>() + offset, from, bytes);
      return;
    }
    const Here here(*this);
    driver_.put(reinterpret_cast<CUdeviceptr>(data_) + offset, from, bytes);
  }
  void get(void* to, std::size_t bytes, std::size_t offset = 0) const {
    if (memory_ == Memory::host || memory_ == Memory::pinned) {
      std::memcpy(to, as<char>() + offset, bytes);
      return;
    }
    const Here here(*this);
    driver_.call<PFN_cuMemcpyDtoH_v3020>("cuMemcpyDtoH_v2", to, reinterpret_cast<CUdeviceptr>(data_) + offset,
                                         bytes);
  }

 private:
  void free_by_driver() {
    const Here here(*this);
    const auto at = reinterpret_cast<CUdeviceptr>(data_);
    switch (memory_) {
      case Memory::host:
        break;
      case Memory::pinned:
        driver_.call<PFN_cuMemFreeHost_v2000>("cuMemFreeHost", data_);
        break;
      case Memory::device:
      case Memory::managed:
        driver_.call<PFN_cuMemFree_v3020>("cuMemFree_v2", at);
        break;
      case Memory::pool:
        driver_.call<PFN_cuMemFreeAsync_v11020>("cuMemFreeAsync", at, CU_STREAM_LEGACY);
        break;
      case Memory::mapped:
        for (std::size_t done = 0; done < mapped_; done += kPart)
          driver_.call<PFN_cuMemUnmap_v10020>("cuMemUnmap", at + done, kPart);
        break;
    }
    data_ = nullptr;
  }

  class Here {
   public:
    explicit Here(const TestMemory& memory) : driver_(memory.driver_), before_(driver_.current()) {
      driver_.set_current(memory.context_);
    }
    Here(const Here&) = delete;
    Here& operator=(const Here&) = delete;
    ~Here() { driver_.set_current(before_); }

   private:
    const TestDriver& driver_;
    CUcontext before_;
  };
  static constexpr std::size_t kPage = 4096;
  static constexpr std::size_t kPart = std::size_t{2} << 20;

  void allocate() {
    const Here here(*this);
    const std::size_t room = bytes_ > 0 ? bytes_ : 1;
    switch (memory_) {
      case Memory::host:
        data_ = std::calloc(1, room);
        break;
      case Memory::pinned:
        driver_.call<PFN_cuMemHostAlloc_v2020>("cuMemHostAlloc", &data_, room, 0U);
        break;
      case Memory::device:
        driver_.call<PFN_cuMemAlloc_v3020>("cuMemAlloc_v2", address(), room);
        break;
      case Memory::managed:
        driver_.call<PFN_cuMemAllocManaged_v6000>("cuMemAllocManaged", address(), room,
                                                  static_cast<unsigned>(CU_MEM_ATTACH_GLOBAL));
        break;
      case Memory::pool:
        driver_.call<PFN_cuMemAllocAsync_v11020>("cuMemAllocAsync", address(), room, CU_STREAM_LEGACY);
        driver_.call<PFN_cuStreamSynchronize_v2000>("cuStreamSynchronize", CU_STREAM_LEGACY);
        break;
      case Memory::mapped:
        map(room);
        break;
    }
  }
  CUdeviceptr* address() { return reinterpret_cast<CUdeviceptr*>(&data_); }
  // In parts of 2 MiB, each of them an allocation of its own, as PyTorch's expandable segments are.
  void map(std::size_t bytes) {
    mapped_ = (bytes + kPart - 1) / kPart * kPart;
    driver_.call<PFN_cuMemAddressReserve_v10020>("cuMemAddressReserve", address(), mapped_, std::size_t{0},
                                                 CUdeviceptr{0}, 0ULL);
    const auto at = reinterpret_cast<CUdeviceptr>(data_);
    CUmemAllocationProp what = {};
    what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    what.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    what.location.id = device_;
    for (std::size_t done = 0; done < mapped_; done += kPart) {
      CUmemGenericAllocationHandle handle = 0;
      driver_.call<PFN_cuMemCreate_v10020>("cuMemCreate", &handle, kPart, &what, 0ULL);
      driver_.call<PFN_cuMemMap_v10020>("cuMemMap", at + done, kPart, std::size_t{0}, handle, 0ULL);
      driver_.call<PFN_cuMemRelease_v10020>("cuMemRelease", handle);
    }
    CUmemAccessDesc access = {};
    access.location = what.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    driver_.call<PFN_cuMemSetAccess_v10020>("cuMemSetAccess", at, mapped_, &access, std::size_t{1});
  }

  const TestDriver& driver_;
  Memory memory_;
  std::size_t bytes_;
  int device_;
  CUcontext context_;
  void* data_ = nullptr;
  std::size_t mapped_ = 0;
};

}  // namespace heddle::test
