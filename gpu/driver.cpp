#include "gpu/driver.hpp"

#include <dlfcn.h>

namespace heddle::gpu {
namespace {

constexpr int kOldestCuda = 11030;
constexpr int kOldestWithLibraries = 12000;
constexpr int kOldestWithLoading = 12040;

// The entry point of one function, or null. CUDA 12 renamed the function that finds functions.
class Finder {
 public:
  explicit Finder(void* library)
      : find_v12_(reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"))),
        find_v11_(reinterpret_cast<PFN_cuGetProcAddress_v11030>(dlsym(library, "cuGetProcAddress"))) {}
  bool usable() const { return find_v12_ != nullptr || find_v11_ != nullptr; }
  void* find(const char* name, int version = kOldestCuda) const {
    constexpr auto kFlags = static_cast<cuuint64_t>(CU_GET_PROC_ADDRESS_LEGACY_STREAM);
    void* function = nullptr;
    const CUresult error = find_v12_ != nullptr ? find_v12_(name, &function, version, kFlags, nullptr)
                                                : find_v11_(name, &function, version, kFlags);
    return error == CUDA_SUCCESS ? function : nullptr;
  }

 private:
  PFN_cuGetProcAddress_v12000 find_v12_;
  PFN_cuGetProcAddress_v11030 find_v11_;
};

}  // namespace

Result<Driver> load_driver(void* library) {
  const Finder finder(library);
  const std::string needed = "; heddle needs the driver of CUDA 11.3 or a later one to serve GPU memory";
  if (!finder.usable()) return Status(Code::unsupported, "libcuda.so.1 has no cuGetProcAddress" + needed);
  Driver driver;
#define HEDDLE_LOAD(name, version)                                                                   \
  driver.name = reinterpret_cast<decltype(driver.name)>(finder.find("cu" #name));                    \
  if (driver.name == nullptr) {                                                                      \
    return Status(Code::unsupported, std::string("libcuda.so.1 has no function cu" #name) + needed); \
  }
  HEDDLE_CUDA_FUNCTIONS(HEDDLE_LOAD)
#undef HEDDLE_LOAD
#define HEDDLE_LOAD_12(name, version) \
  driver.name = reinterpret_cast<decltype(driver.name)>(finder.find("cu" #name, kOldestWithLibraries));
  HEDDLE_CUDA_12_FUNCTIONS(HEDDLE_LOAD_12)
#undef HEDDLE_LOAD_12
  driver.FuncLoad =
      reinterpret_cast<decltype(driver.FuncLoad)>(finder.find("cuFuncLoad", kOldestWithLoading));
  return driver;
}

std::string error_text(const Driver& driver, CUresult error) {
  const char* name = nullptr;
  const char* meaning = nullptr;
  driver.GetErrorName(error, &name);
  driver.GetErrorString(error, &meaning);
  return std::string(name != nullptr ? name : "an unknown CUDA error") + " (" +
         std::to_string(static_cast<int>(error)) +
         (meaning != nullptr ? std::string(": ") + meaning : std::string()) + ")";
}

bool is_of_capture(CUresult error) {
  return error >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && error <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

Status cuda_error(const Driver& driver, CUresult error, const std::string& what) {
  Code code = Code::system;
  if (error == CUDA_ERROR_OUT_OF_MEMORY) code = Code::out_of_memory;
  if (error == CUDA_ERROR_INVALID_VALUE || is_of_capture(error)) code = Code::invalid_argument;
  return Status(code, what + ": " + error_text(driver, error));
}

}  // namespace heddle::gpu
