// What a process has of CUDA once it has loaded the driver. For gpu/ alone.
#pragma once

#include <atomic>
#include <cstddef>

#include "base/status.hpp"
#include "gpu/contexts.hpp"
#include "gpu/driver.hpp"
#include "gpu/exchange.hpp"
#include "gpu/kernels.hpp"
#include "gpu/pinned_pool.hpp"
#include "gpu/pointers.hpp"
#include "gpu/sparse_kernels.hpp"

namespace heddle::gpu {

class Cuda {
 public:
  Cuda(const Result<Driver>& loaded, std::size_t pinned_bytes)
      : driver(loaded.ok() ? loaded.value() : Driver{}),
        lacking(loaded.status()),
        pointers(driver),
        contexts(driver),
        pool(driver, pinned_bytes),
        kernels(driver),
        sparse_kernels(driver),
        exchange_kernel(driver) {}

  const Driver driver;
  const Status lacking;  // why the driver cannot be used; then nothing below is
  Pointers pointers;
  Contexts contexts;
  PinnedPool pool;
  Kernels kernels;
  SparseKernels sparse_kernels;
  ExchangeKernel exchange_kernel;
  std::atomic<bool> stays = false;  // something that borrows it is never ended
};

}  // namespace heddle::gpu
