// What lets one text be a kernel on a GPU and a function on the host, where it is tested: the host twin.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define HEDDLE_HOST_DEVICE __host__ __device__
// Before a loop over inputs or outputs, whose number the compiler cannot know: copies of it are but size.
#define HEDDLE_NOT_UNROLLED _Pragma("unroll 1")
// Before a loop over what is to stay in registers.
#define HEDDLE_UNROLLED _Pragma("unroll")
#else
#define HEDDLE_HOST_DEVICE
#define HEDDLE_NOT_UNROLLED
#define HEDDLE_UNROLLED
#endif

namespace heddle::gpu::kernels {

// Sixteen bytes: the widest load and store there is.
struct alignas(16) Vector {
  std::uint32_t words[4];
};

// `at` is a multiple of 16.
HEDDLE_HOST_DEVICE inline Vector load_vector(const unsigned char* at) {
#ifdef __CUDA_ARCH__
  // By the type that is one load, always: structures may be taken to pieces.
  const uint4 vector = *reinterpret_cast<const uint4*>(at);
  return {vector.x, vector.y, vector.z, vector.w};
#else
  Vector vector;
  std::memcpy(&vector, __builtin_assume_aligned(at, sizeof vector), sizeof vector);
  return vector;
#endif
}

HEDDLE_HOST_DEVICE inline void store_vector(unsigned char* at, const Vector& vector) {
#ifdef __CUDA_ARCH__
  *reinterpret_cast<uint4*>(at) =
      make_uint4(vector.words[0], vector.words[1], vector.words[2], vector.words[3]);
#else
  std::memcpy(__builtin_assume_aligned(at, sizeof vector), &vector, sizeof vector);
#endif
}

// An address of global memory. Where the compiler is told it takes loads of that alone, and need not keep
// them in order with what is stored in a block's own memory.
HEDDLE_HOST_DEVICE inline const unsigned char* global(const unsigned char* at) {
#ifdef __CUDA_ARCH__
  __builtin_assume(__isGlobal(at));
#endif
  return at;
}

// Brings the 128 bytes around an address of global memory into the cache that all multiprocessors share.
// Nobody waits.
HEDDLE_HOST_DEVICE inline void prefetch([[maybe_unused]] const unsigned char* at) {
#ifdef __CUDA_ARCH__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#endif
}

// One element, which is aligned as such.
template <typename Stored>
HEDDLE_HOST_DEVICE inline Stored load_element(const unsigned char* at) {
#ifdef __CUDA_ARCH__
  return *reinterpret_cast<const Stored*>(at);
#else
  Stored stored;
  std::memcpy(&stored, at, sizeof stored);
  return stored;
#endif
}

template <typename Stored>
HEDDLE_HOST_DEVICE inline void store_element(unsigned char* at, const Stored& stored) {
#ifdef __CUDA_ARCH__
  *reinterpret_cast<Stored*>(at) = stored;
#else
  std::memcpy(at, &stored, sizeof stored);
#endif
}

// Up to four bytes at any address: a word where one may be, bytes else.
HEDDLE_HOST_DEVICE inline void store_bytes(unsigned char* to, std::uint32_t word, unsigned bytes) {
  if (bytes == 4 && reinterpret_cast<std::uintptr_t>(to) % 4 == 0) return store_element(to, word);
  for (unsigned i = 0; i < bytes; ++i)
    to[i] = static_cast<unsigned char>(word >> 8 * i);
}

HEDDLE_HOST_DEVICE inline std::uint32_t load_each_byte(const unsigned char* from, unsigned bytes) {
  std::uint32_t word = 0;
  for (unsigned i = 0; i < bytes; ++i)
    word |= std::uint32_t{from[i]} << 8 * i;
  return word;
}

HEDDLE_HOST_DEVICE inline std::uint32_t load_bytes(const unsigned char* from, unsigned bytes) {
  if (bytes == 4 && reinterpret_cast<std::uintptr_t>(from) % 4 == 0) return load_element<std::uint32_t>(from);
  return load_each_byte(from, bytes);
}

// Byte b is the one of two words' eight that digit b of `selector` says, the lowest being 0.
HEDDLE_HOST_DEVICE inline std::uint32_t permuted(std::uint32_t low, std::uint32_t high,
                                                 std::uint32_t selector) {
#ifdef __CUDA_ARCH__
  return __byte_perm(low, high, selector);
#else
  const std::uint64_t both = low | std::uint64_t{high} << 32;
  std::uint32_t word = 0;
  for (unsigned b = 0; b < 4; ++b)
    word |= static_cast<std::uint32_t>(both >> 8 * (selector >> 4 * b & 7U) & 0xFFU) << 8 * b;
  return word;
#endif
}

// The same bits as another type.
template <typename To, typename From>
HEDDLE_HOST_DEVICE inline To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

template <typename T>
HEDDLE_HOST_DEVICE inline bool is_nan(T value) {
  return value != value;  // NOLINT(misc-redundant-expression)
}

}  // namespace heddle::gpu::kernels
