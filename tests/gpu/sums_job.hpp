// What MPI programs share whose sums are in GPU memory on some ranks or on all, by the double of CUDA's
// driver, which counts calls and bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "../preload/job.hpp"
#include "cuda_memory.hpp"

namespace heddle::test {

using Bytes = std::vector<unsigned char>;

struct Job {
  explicit Job(const char* library) : rank(job::rank_of(MPI_COMM_WORLD)), size(job::size_of(MPI_COMM_WORLD)) {
    if (library != nullptr) driver.emplace(library);
  }
  bool last() const { return rank == size - 1; }
  int calls(const char* name) const { return driver ? driver->calls(name) : 0; }
  std::size_t bytes(const char* name) const {
    return driver->find<std::size_t (*)(const char*)>("fake_cuda_bytes")(name);
  }
  void fail(const char* name, int times) const {
    driver->find<void (*)(const char*, int, int)>("fake_cuda_fail")(name, CUDA_ERROR_LAUNCH_FAILED, times);
  }

  const int rank;
  const int size;
  std::optional<TestDriver> driver;
};

// Memory of a kind, or the host's where there is no driver.
class Buffer {
 public:
  Buffer(const Job& job, Memory kind, int device, const Bytes& content, std::size_t shift = 0)
      : shift_(shift), bytes_(content.size()) {
    if (job.driver) {
      there_.emplace(*job.driver, kind, bytes_ + shift, device);
      there_->put(content.data(), bytes_, shift);
    } else {
      here_ = content;
    }
  }
  void* data() { return there_ ? static_cast<void*>(there_->as<char>() + shift_) : here_.data(); }
  void put(const Bytes& content) {
    if (there_) there_->put(content.data(), bytes_, shift_);
    if (!there_) std::copy(content.begin(), content.end(), here_.begin());
  }
  Bytes content() const {
    if (!there_) return here_;
    Bytes got(bytes_);
    there_->get(got.data(), bytes_, shift_);
    return got;
  }
  void* lose() { return there_->lose(); }

 private:
  std::size_t shift_;
  std::size_t bytes_;
  std::optional<TestMemory> there_;
  Bytes here_;
};

struct Where {
  Memory in = Memory::device;
  Memory out = Memory::device;
  int in_device = 0;
  int out_device = 0;
  bool in_place = false;
  std::size_t shift = 0;  // bytes
};

// What this rank's GPU and driver did in a call.
struct Traffic {
  int looks = 0;
  int kernels = 0;
  int nodes = 0;  // questions of the path over the nodes
  std::size_t to_host = 0;
  std::size_t to_gpu = 0;
};
inline Traffic now(const Job& job) {
  if (!job.driver) return {};
  return {job.calls("cuMemcpy2DAsync"), job.calls("cuLaunchKernel"), job.calls("cuStreamQuery"),
          job.bytes("cuMemcpyDtoHAsync") + job.bytes("cuMemcpy2DAsync"), job.bytes("cuMemcpyHtoDAsync")};
}

}  // namespace heddle::test
