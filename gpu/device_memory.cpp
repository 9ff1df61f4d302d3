#include "gpu/device_memory.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "base/round_up.hpp"
#include "gpu/address.hpp"
#include "gpu/driver.hpp"

namespace heddle::gpu {
namespace {

constexpr std::size_t kPage = 4096;

class CudaMemory final : public DeviceMemory {
 public:
  explicit CudaMemory(const Driver& driver) : driver_(driver) {}
  ~CudaMemory() override;
  Status open(int wanted);

  std::string name() const override { return name_; }
  Result<void*> allocate(Kind kind, std::size_t bytes) override;
  void release(void* memory) override;
  Status put(void* to, const void* from, std::size_t bytes) override {
    return finish("to", bytes, driver_.MemcpyHtoDAsync(number(to), from, bytes, default_stream()));
  }
  Status get(void* to, const void* from, std::size_t bytes) override {
    return finish("from", bytes, driver_.MemcpyDtoHAsync(to, number(from), bytes, default_stream()));
  }

 private:
  Status failed(CUresult error, const std::string& what) const { return cuda_error(driver_, error, what); }
  Status finish(const char* direction, std::size_t bytes, CUresult error) const {
    if (error == CUDA_SUCCESS) error = driver_.StreamSynchronize(default_stream());
    if (error == CUDA_SUCCESS) return {};
    return failed(error, fmt::format("copying {} bytes {} {}", bytes, direction, name_));
  }
  Result<void*> pin(std::size_t bytes);

  const Driver driver_;
  std::string name_;
  std::vector<CUdeviceptr> device_;
  std::vector<void*> pinned_;
};

// The context stays: a library that uses CUDA may still have something in it.
CudaMemory::~CudaMemory() {
  for (const CUdeviceptr at : device_)
    driver_.MemFree(at);
  for (void* memory : pinned_) {
    driver_.MemHostUnregister(memory);
    std::free(memory);
  }
}

Status CudaMemory::open(int wanted) {
  int count = 0;
  CUresult error = driver_.Init(0);
  if (error == CUDA_SUCCESS) error = driver_.DeviceGetCount(&count);
  if (error != CUDA_SUCCESS || count == 0) {
    const CUresult why = error != CUDA_SUCCESS ? error : CUDA_ERROR_NO_DEVICE;
    return Status(Code::unsupported, failed(why, "CUDA's driver finds no GPU").message());
  }
  const int ordinal = wanted % count;
  CUdevice device = 0;
  CUcontext context = nullptr;
  char name[256] = "";
  error = driver_.DeviceGet(&device, ordinal);
  if (error == CUDA_SUCCESS) error = driver_.DeviceGetName(name, sizeof name, device);
  if (error == CUDA_SUCCESS) error = driver_.DevicePrimaryCtxRetain(&context, device);
  if (error == CUDA_SUCCESS) error = driver_.CtxPushCurrent(context);
  name_ = fmt::format("GPU {}, {}", ordinal, name);
  return error == CUDA_SUCCESS ? Status() : failed(error, "making a context on " + name_);
}

Result<void*> CudaMemory::pin(std::size_t bytes) {
  const std::size_t whole = round_up(bytes, kPage);
  void* const memory = std::aligned_alloc(kPage, whole);
  if (memory == nullptr) return Status(Code::out_of_memory, fmt::format("no {} bytes of memory", whole));
  const CUresult error = driver_.MemHostRegister(memory, whole, 0);
  if (error != CUDA_SUCCESS) {
    std::free(memory);
    return failed(error, fmt::format("pinning {} bytes", whole));
  }
  pinned_.push_back(memory);
  return memory;
}

Result<void*> CudaMemory::allocate(Kind kind, std::size_t bytes) {
  if (kind == Kind::pinned) return pin(bytes);
  CUdeviceptr at = 0;
  const CUresult error = kind == Kind::managed ? driver_.MemAllocManaged(&at, bytes, CU_MEM_ATTACH_GLOBAL)
                                               : driver_.MemAlloc(&at, bytes);
  if (error != CUDA_SUCCESS)
    return failed(error,
                  fmt::format("allocating {} bytes of {} memory on {}", bytes, kind_name(kind), name_));
  device_.push_back(at);
  return reinterpret_cast<void*>(at);
}

void CudaMemory::release(void* memory) {
  if (std::erase(device_, number(memory)) > 0) driver_.MemFree(number(memory));
  if (std::erase(pinned_, memory) == 0) return;
  driver_.MemHostUnregister(memory);
  std::free(memory);
}

}  // namespace

Result<std::unique_ptr<DeviceMemory>> open_device_memory(int number) {
  // Never closed: drivers start threads that do not survive it.
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Status(Code::unsupported, "there is no CUDA driver here (libcuda.so.1)");
  const Result<Driver> driver = load_driver(library);
  if (!driver.ok()) return driver.status();
  auto memory = std::make_unique<CudaMemory>(driver.value());
  HEDDLE_TRY(memory->open(number));
  return std::unique_ptr<DeviceMemory>(std::move(memory));
}

}  // namespace heddle::gpu
