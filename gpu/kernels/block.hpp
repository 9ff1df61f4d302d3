// What the threads of a block do together, as one text for a GPU and for the host, where it is tested. A
// kernel is a sequence of phases:
//
//   block.each([&](unsigned thread) { ... });   every thread does it, and then they wait for each other
//
// A GPU runs a phase once in each thread, with a barrier after it; the host runs it for all threads, one
// after the other. What a thread keeps from phase to phase is an Each<T>: a register there, an array here.
// What stands between phases is the same for all threads, and so are branches and loops around them: they
// depend on arguments and on shared memory that the phase before has written.
//
// Blocks meet in memory, by the words that are read and written below. Those that the host runs at once are
// threads of its own.
#pragma once

#include <cstdint>

#include "gpu/kernels/arguments.hpp"
#include "gpu/kernels/portable.hpp"

#ifdef __CUDACC__
#define HEDDLE_DEVICE __device__
#else
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#define HEDDLE_DEVICE
#endif

namespace heddle::gpu::kernels {

inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kWarps = kThreads / kWarp;

HEDDLE_DEVICE inline std::uint32_t ones(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return static_cast<std::uint32_t>(__popc(bits));
#else
  return static_cast<std::uint32_t>(__builtin_popcount(bits));
#endif
}

#ifdef __CUDACC__

// ---- Words that blocks share. A word by itself: nothing is said of the order of others, but by meet().

__device__ inline std::uint64_t load_shared_word(const std::uint64_t* at) {
  std::uint64_t word;
  asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(word) : "l"(at) : "memory");
  return word;
}
__device__ inline void store_shared_word(std::uint64_t* at, std::uint64_t word) {
  asm volatile("st.relaxed.gpu.u64 [%0], %1;" ::"l"(at), "l"(word) : "memory");
}
__device__ inline std::uint64_t add_to_word(std::uint64_t* at, std::uint64_t more) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(more));
}
// Counts the callers, or what they have; each sees what those before it had written.
__device__ inline std::uint64_t meet(std::uint64_t* at, std::uint64_t more = 1) {
  std::uint64_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;"
               : "=l"(before)
               : "l"(__cvta_generic_to_global(at)), "l"(more)
               : "memory");
  return before;
}
// Who has seen the word sees, once it has acquired it, what had been written before it was released, also by
// threads that its writer had met at a barrier.
__device__ inline std::uint64_t acquire_word(const std::uint64_t* at) {
  std::uint64_t word;
  asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(word) : "l"(at) : "memory");
  return word;
}
__device__ inline void release_word(std::uint64_t* at, std::uint64_t word) {
  asm volatile("st.release.gpu.u64 [%0], %1;" ::"l"(at), "l"(word) : "memory");
}
// Words that other GPUs and the host see as well.
__device__ inline std::uint64_t load_system_word(const std::uint64_t* at) {
  std::uint64_t word;
  asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(word) : "l"(at) : "memory");
  return word;
}
__device__ inline void store_system_word(std::uint64_t* at, std::uint64_t word) {
  asm volatile("st.relaxed.sys.u64 [%0], %1;" ::"l"(at), "l"(word) : "memory");
}
// On a clock that goes on while threads wait.
__device__ inline std::uint64_t nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
// Threads of a GPU all run.
__device__ inline void let_others_run() {}
// Before a thread looks again for what another block has yet to write.
__device__ inline void pause() {
  __nanosleep(100);
}
// In the block's own memory.
__device__ inline void add_in_block(std::uint32_t* at, std::uint32_t more) {
  atomicAdd(at, more);
}

// ---- A warp: what its 32 lanes do at once

template <typename T>
struct OfLane {
  T own;
  __device__ T& operator[](unsigned) { return own; }
  __device__ const T& operator[](unsigned) const { return own; }
};

struct Warp {
  template <class F>
  __device__ void each(F f) const {
    f(threadIdx.x % kWarp);
    __syncwarp();
  }
  // What no other lane's is touched in: nobody waits.
  template <class F>
  __device__ void alone(F f) const {
    f(threadIdx.x % kWarp);
  }
  // Bit l is what lane l says.
  template <class F>
  __device__ std::uint32_t ballot(F f) const {
    return __ballot_sync(0xFFFFFFFFU, f(threadIdx.x % kWarp));
  }
  template <class F>
  __device__ std::uint64_t sum(F f) const {
    std::uint64_t sum = f(threadIdx.x % kWarp);
    for (unsigned far = kWarp / 2; far > 0; far /= 2)
      sum += __shfl_xor_sync(0xFFFFFFFFU, sum, far);
    return sum;
  }
  // values[l] := the sum of those before lane l. Gives the sum of all.
  __device__ std::uint32_t scan(OfLane<std::uint32_t>& values) const {
    std::uint32_t sum = values.own;
    for (unsigned far = 1; far < kWarp; far *= 2) {
      const std::uint32_t other = __shfl_up_sync(0xFFFFFFFFU, sum, far);
      if (threadIdx.x % kWarp >= far) sum += other;
    }
    values.own = sum - values.own;
    return __shfl_sync(0xFFFFFFFFU, sum, kWarp - 1);
  }
  // values[l] += values[l ^ far], of all lanes at once.
  __device__ void add_far(OfLane<double>& values, unsigned far) const {
    values.own += __shfl_xor_sync(0xFFFFFFFFU, values.own, static_cast<int>(far));
  }
  // Of eight neighbours: hexadecimal digit d of words[l] becomes digit l of words[d]. By halves, of which
  // lanes exchange what is not theirs.
  __device__ void transpose_digits(OfLane<std::uint32_t>& words) const {
    std::uint32_t mask = 0x0000FFFFU;  // the lower half of what is exchanged
    for (unsigned far = 4; far > 0; far /= 2, mask ^= mask << 4 * far) {
      const std::uint32_t other = __shfl_xor_sync(0xFFFFFFFFU, words.own, static_cast<int>(far));
      words.own = (threadIdx.x & far) == 0 ? (words.own & mask) | (other & mask) << 4 * far
                                           : (other >> 4 * far & mask) | (words.own & ~mask);
    }
  }
  // Before it looks again for what another block has yet to write.
  __device__ void pause() const { __nanosleep(20); }
};

// ---- A block

template <typename T>
using Each = OfLane<T>;

struct Block {
  template <class F>
  __device__ void each(F f) const {
    f(threadIdx.x);
    __syncthreads();
  }
  // What no other thread's is touched in: nobody waits.
  template <class F>
  __device__ void alone(F f) const {
    f(threadIdx.x);
  }
  template <class F>
  __device__ void first_warp(F f) const {
    if (threadIdx.x < kWarp) f(Warp());
    __syncthreads();
  }
  // Each warp by itself, with its number: warps do not wait for each other, not even at the end.
  template <class F>
  __device__ void warps(F f) const {
    f(Warp(), threadIdx.x / kWarp);
  }
  // Likewise, and then they wait for each other.
  template <class F>
  __device__ void each_warp(F f) const {
    warps(f);
    __syncthreads();
  }
  // bits[w]: bit l is what lane l of warp w says.
  template <class F>
  __device__ void ballot_warps(std::uint32_t* bits, F f) const {
    const std::uint32_t own = __ballot_sync(0xFFFFFFFFU, f(threadIdx.x));
    if (threadIdx.x % kWarp == 0) bits[threadIdx.x / kWarp] = own;
    __syncthreads();
  }
  // values[t] := the sum of those before thread t in its warp; totals[w]: that of warp w.
  __device__ void scan_warps(Each<std::uint64_t>& values, std::uint64_t* totals) const {
    std::uint64_t sum = values.own;
    const unsigned lane = threadIdx.x % kWarp;
    for (unsigned far = 1; far < kWarp; far *= 2) {
      const std::uint64_t other = __shfl_up_sync(0xFFFFFFFFU, sum, far);
      if (lane >= far) sum += other;
    }
    if (lane == kWarp - 1) totals[threadIdx.x / kWarp] = sum;
    values.own = sum - values.own;
    __syncthreads();
  }
  // largest[w]: of the values of warp w.
  __device__ void max_warps(const Each<std::uint32_t>& values, std::uint32_t* largest) const {
    std::uint32_t most = values.own;
    for (unsigned far = kWarp / 2; far > 0; far /= 2)
      most = max(most, __shfl_xor_sync(0xFFFFFFFFU, most, far));
    if (threadIdx.x % kWarp == 0) largest[threadIdx.x / kWarp] = most;
    __syncthreads();
  }
  std::uint64_t number;
  std::uint64_t of;  // blocks
};

#else

inline std::uint64_t load_shared_word(const std::uint64_t* at) {
  return std::atomic_ref(*const_cast<std::uint64_t*>(at)).load(std::memory_order_relaxed);
}
inline void store_shared_word(std::uint64_t* at, std::uint64_t word) {
  std::atomic_ref(*at).store(word, std::memory_order_relaxed);
}
inline std::uint64_t add_to_word(std::uint64_t* at, std::uint64_t more) {
  return std::atomic_ref(*at).fetch_add(more, std::memory_order_relaxed);
}
inline std::uint64_t meet(std::uint64_t* at, std::uint64_t more = 1) {
  return std::atomic_ref(*at).fetch_add(more, std::memory_order_acq_rel);
}
inline std::uint64_t acquire_word(const std::uint64_t* at) {
  return std::atomic_ref(*const_cast<std::uint64_t*>(at)).load(std::memory_order_acquire);
}
inline void release_word(std::uint64_t* at, std::uint64_t word) {
  std::atomic_ref(*at).store(word, std::memory_order_release);
}
inline std::uint64_t load_system_word(const std::uint64_t* at) {
  return load_shared_word(at);
}
inline void store_system_word(std::uint64_t* at, std::uint64_t word) {
  store_shared_word(at, word);
}
inline std::uint64_t nanoseconds() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                    std::chrono::nanoseconds(1));
}
// Where a kernel is run that is known to wait in vain nobody comes meanwhile.
inline thread_local bool others_may_come = true;
inline void let_others_run() {
  if (others_may_come) std::this_thread::yield();
}
inline void pause() {
  std::this_thread::yield();
}
inline void add_in_block(std::uint32_t* at, std::uint32_t more) {
  *at += more;
}

template <typename T>
struct OfLane {
  T all[kWarp];
  T& operator[](unsigned lane) { return all[lane]; }
  const T& operator[](unsigned lane) const { return all[lane]; }
};

// From the last to the first, here and below: nothing may depend on the order.
struct Warp {
  template <class F>
  void each(F f) const {
    for (unsigned lane = kWarp; lane-- > 0;)
      f(lane);
  }
  template <class F>
  void alone(F f) const {
    each(f);
  }
  template <class F>
  std::uint32_t ballot(F f) const {
    std::uint32_t bits = 0;
    for (unsigned lane = kWarp; lane-- > 0;)
      bits |= std::uint32_t{f(lane)} << lane;
    return bits;
  }
  template <class F>
  std::uint64_t sum(F f) const {
    std::uint64_t sum = 0;
    for (unsigned lane = kWarp; lane-- > 0;)
      sum += f(lane);
    return sum;
  }
  std::uint32_t scan(OfLane<std::uint32_t>& values) const {
    std::uint32_t sum = 0;
    for (std::uint32_t& value : values.all)
      sum += std::exchange(value, sum);
    return sum;
  }
  void add_far(OfLane<double>& values, unsigned far) const {
    const OfLane<double> before = values;
    each([&](unsigned lane) { values[lane] += before[lane ^ far]; });
  }
  void transpose_digits(OfLane<std::uint32_t>& words) const {
    const OfLane<std::uint32_t> before = words;
    each([&](unsigned lane) {
      words[lane] = 0;
      for (unsigned l = 0; l < 8; ++l)
        words[lane] |= (before[lane / 8 * 8 + l] >> 4 * (lane % 8) & 0xFU) << 4 * l;
    });
  }
  void pause() const { std::this_thread::yield(); }
};

template <typename T>
struct Each {
  T all[kThreads];
  T& operator[](unsigned thread) { return all[thread]; }
  const T& operator[](unsigned thread) const { return all[thread]; }
};

struct Block {
  template <class F>
  void each(F f) const {
    for (unsigned thread = kThreads; thread-- > 0;)
      f(thread);
  }
  template <class F>
  void alone(F f) const {
    each(f);
  }
  template <class F>
  void first_warp(F f) const {
    f(Warp());
  }
  template <class F>
  void warps(F f) const {
    for (unsigned warp = kWarps; warp-- > 0;)
      f(Warp(), warp);
  }
  template <class F>
  void each_warp(F f) const {
    warps(f);
  }
  template <class F>
  void ballot_warps(std::uint32_t* bits, F f) const {
    for (unsigned warp = 0; warp < kWarps; ++warp)
      bits[warp] = Warp().ballot([&](unsigned lane) { return f(warp * kWarp + lane); });
  }
  void scan_warps(Each<std::uint64_t>& values, std::uint64_t* totals) const {
    for (unsigned warp = 0; warp < kWarps; ++warp) {
      std::uint64_t sum = 0;
      for (unsigned thread = warp * kWarp; thread < (warp + 1) * kWarp; ++thread) {
        const std::uint64_t own = values[thread];
        values[thread] = sum;
        sum += own;
      }
      totals[warp] = sum;
    }
  }
  void max_warps(const Each<std::uint32_t>& values, std::uint32_t* largest) const {
    for (unsigned warp = 0; warp < kWarps; ++warp)
      largest[warp] = *std::max_element(values.all + warp * kWarp, values.all + (warp + 1) * kWarp);
  }
  std::uint64_t number;
  std::uint64_t of;  // blocks
};

#endif

}  // namespace heddle::gpu::kernels
