#include "common/check_results.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace heddle::bench {
namespace {

constexpr std::size_t kPeriod = 11;

// What `rank` contributes at `index`: small whole numbers, which every type holds and adds up exactly (bytes
// wrap).
int contribution(std::size_t index, int rank) {
  return static_cast<int>((index * 7 + static_cast<std::size_t>(rank) * 3) % kPeriod);
}

template <typename T>
void fill(void* buffer, std::size_t count, int rank) {
  T* values = static_cast<T*>(buffer);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<T>(contribution(i, rank));
}

template <typename T>
void poison(void* buffer, std::size_t count) {
  std::fill_n(static_cast<T*>(buffer), count, static_cast<T>(99));
}

// Whether element i is the sum of what ranks first..last contributed.
template <typename T>
bool holds_sum(const void* buffer, std::size_t count, int first, int last) {
  std::array<T, kPeriod> expected{};
  for (std::size_t i = 0; i < kPeriod; ++i) {
    long long sum = 0;
    for (int rank = first; rank <= last; ++rank)
      sum += contribution(i, rank);
    expected[i] = static_cast<T>(sum);
  }
  const T* values = static_cast<const T*>(buffer);
  for (std::size_t i = 0; i < count; ++i)
    if (values[i] != expected[i % kPeriod]) return false;
  return true;
}

// Calls `f` with a value of the C++ type that stands for `dtype`.
template <typename F>
auto with_type(Dtype dtype, F f) {
  switch (dtype) {
    case Dtype::int32:
      return f(std::int32_t{});
    case Dtype::float32:
      return f(float{});
    case Dtype::float64:
      return f(double{});
    case Dtype::int8:
      break;
  }
  return f(std::int8_t{});
}

void call_allreduce(Side& side, Kind kind, const void* input, void* output, std::size_t count) {
  if (kind == Kind::allreduce) return side.allreduce(input, output, count);
  side.start_allreduce(input, output, count);
  side.finish();
}

void call_bcast(Side& side, Kind kind, void* buffer, std::size_t count, int root) {
  if (kind == Kind::bcast) return side.bcast(buffer, count, root);
  side.start_bcast(buffer, count, root);
  side.finish();
}

bool allreduce_is_right(const Job& job, Side& side, Kind kind, Dtype dtype, std::size_t bytes,
                        BufferPool& send, BufferPool& receive) {
  return with_type(dtype, [&]<typename T>(T) {
    const std::size_t count = bytes / sizeof(T);
    void* const input = send.next();
    void* const output = receive.next();
    fill<T>(input, count, job.rank());
    poison<T>(output, count);
    call_allreduce(side, kind, input, output, count);
    const bool good = holds_sum<T>(output, count, 0, job.size() - 1);
    return job.all(good);
  });
}

bool bcast_is_right(const Job& job, Side& side, Kind kind, Dtype dtype, std::size_t bytes,
                    BufferPool& buffers) {
  return with_type(dtype, [&]<typename T>(T) {
    const std::size_t count = bytes / sizeof(T);
    bool good = true;
    for (int root = 0; root < job.size(); ++root) {
      void* const buffer = buffers.next();
      if (root == job.rank()) {
        fill<T>(buffer, count, root);
      } else {
        poison<T>(buffer, count);
      }
      call_bcast(side, kind, buffer, count, root);
      good = holds_sum<T>(buffer, count, root, root) && good;
    }
    return job.all(good);
  });
}

}  // namespace

bool collective_is_right(const Job& job, Side& side, Kind kind, Dtype dtype, std::size_t bytes,
                         BufferPool& send, BufferPool& receive) {
  return reduces(kind) ? allreduce_is_right(job, side, kind, dtype, bytes, send, receive)
                       : bcast_is_right(job, side, kind, dtype, bytes, send);
}

bool messages_are_right(const Job& job, Side& side, Dtype dtype, std::size_t bytes, BufferPool& send,
                        BufferPool& receive) {
  return with_type(dtype, [&]<typename T>(T) {
    const std::size_t count = bytes / sizeof(T);
    void* const out = send.next();
    void* const in = receive.next();
    poison<T>(in, count);
    if (job.rank() == 0) {
      fill<T>(out, count, 0);
      side.send(out, count, 1);
      side.receive(in, count, 1);
    } else {
      side.receive(in, count, 0);
      side.send(in, count, 0);
    }
    return job.all(holds_sum<T>(in, count, 0, 0));
  });
}

}  // namespace heddle::bench
