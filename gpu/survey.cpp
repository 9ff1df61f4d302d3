#include "gpu/survey.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <utility>

#include "gpu/driver.hpp"
#include "gpu/kernels/binaries.hpp"

namespace heddle::gpu {
namespace {

Device describe(const Driver& driver, int ordinal) {
  Device device;
  CUdevice handle = 0;
  if (driver.DeviceGet(&handle, ordinal) != CUDA_SUCCESS) return device;
  char text[256] = "";
  if (driver.DeviceGetName(text, sizeof text, handle) == CUDA_SUCCESS) device.name = text;
  char pci[32] = "";
  if (driver.DeviceGetPCIBusId(pci, sizeof pci, handle) == CUDA_SUCCESS) device.pci = pci;
  int major = 0;
  int minor = 0;
  driver.DeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, handle);
  driver.DeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, handle);
  device.capability = 10 * major + minor;
  int has = 0;
  driver.DeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, handle);
  device.dmabuf = has != 0;
  has = 0;
  driver.DeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, handle);
  device.gpu_direct = has != 0;
  driver.DeviceTotalMem(&device.bytes, handle);
  return device;
}

// What holds for both directions.
Pair compare(const Driver& driver, int first, int second) {
  Pair pair{first, second, true, true, 0};
  CUdevice a = 0;
  CUdevice b = 0;
  if (driver.DeviceGet(&a, first) != CUDA_SUCCESS || driver.DeviceGet(&b, second) != CUDA_SUCCESS)
    return {first, second};
  const auto ask = [&](CUdevice_P2PAttribute what, CUdevice from, CUdevice to) {
    int value = 0;
    return driver.DeviceGetP2PAttribute(&value, what, from, to) == CUDA_SUCCESS ? value : 0;
  };
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    pair.reach = pair.reach && ask(CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, from, to) != 0;
    pair.atomics = pair.atomics && ask(CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, from, to) != 0;
    pair.rank = std::max(pair.rank, ask(CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, from, to));
  }
  return pair;
}

}  // namespace

const char* kernel_architectures() {
  return kernels::architectures();
}

Result<Survey> survey() {
  // Never closed: drivers start threads that do not survive it.
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return Status(Code::unsupported, "no driver (libcuda.so.1)");
  const Result<Driver> driver = load_driver(library);
  if (!driver.ok()) return driver.status();
  Survey found;
  driver->DriverGetVersion(&found.driver);
  int count = 0;
  CUresult error = driver->Init(0);
  if (error == CUDA_SUCCESS) error = driver->DeviceGetCount(&count);
  if (error != CUDA_SUCCESS) {
    Status status = cuda_error(driver.value(), error, "the driver cannot be initialised");
    return Status(Code::unsupported, status.message());
  }
  for (int i = 0; i < count; ++i)
    found.devices.push_back(describe(driver.value(), i));
  for (int i = 0; i < count; ++i) {
    for (int j = i + 1; j < count; ++j)
      found.pairs.push_back(compare(driver.value(), i, j));
  }
  return found;
}

}  // namespace heddle::gpu
