// Addresses as the driver takes them.
#pragma once

#include <cstdint>

namespace heddle::gpu {

// A CUdeviceptr, without the toolkit's headers.
inline std::uintptr_t number(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

}  // namespace heddle::gpu
