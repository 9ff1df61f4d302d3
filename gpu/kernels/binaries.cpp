#include "gpu/kernels/binaries.hpp"

#ifdef HEDDLE_KERNEL_ARCHITECTURES
// embed.S
extern "C" {
extern const unsigned char heddle_float_kernels[];
extern const unsigned char heddle_half_kernels[];
extern const unsigned char heddle_fp8_kernels[];
extern const unsigned char heddle_integer_kernels[];
extern const unsigned char heddle_bit_kernels[];
extern const unsigned char heddle_sparse_kernels[];
extern const unsigned char heddle_exchange_kernels[];
}
#endif

namespace heddle::gpu::kernels {

#ifdef HEDDLE_KERNEL_ARCHITECTURES
const void* binary(Family family) {
  switch (family) {
    case Family::floats:
      return heddle_float_kernels;
    case Family::halves:
      return heddle_half_kernels;
    case Family::fp8:
      return heddle_fp8_kernels;
    case Family::integers:
      return heddle_integer_kernels;
    case Family::bits:
      return heddle_bit_kernels;
    case Family::sparse:
      return heddle_sparse_kernels;
    case Family::exchange:
      return heddle_exchange_kernels;
  }
  return nullptr;
}

const char* architectures() {
  return HEDDLE_KERNEL_ARCHITECTURES;
}
#else
const void* binary(Family /*family*/) {
  return nullptr;
}

const char* architectures() {
  return "";
}
#endif

}  // namespace heddle::gpu::kernels
