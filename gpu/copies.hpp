// Copies between the host and a device, complete on return, on the legacy default stream.
#pragma once

#include <cstddef>

#include "gpu/driver.hpp"
#include "gpu/pinned_pool.hpp"

namespace heddle::gpu {

// Memory of the host that is not pinned is copied through pieces of pinned memory: while one is on its way to
// or from the device, the host copies another.
inline constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

// `context` is the current one. `pinned`: `host` is.
CUresult copy_to_host(const Driver& driver, PinnedPool& pool, CUcontext context, void* host,
                      CUdeviceptr device, std::size_t bytes, bool pinned);
CUresult copy_to_device(const Driver& driver, PinnedPool& pool, CUcontext context, CUdeviceptr device,
                        const void* host, std::size_t bytes, bool pinned);

}  // namespace heddle::gpu
