#include "common/check_results.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace heddle::bench {
namespace {

constexpr std::size_t kPeriod = 11;

// What `rank` contributes at `index`: small whole numbers, which every type holds and adds up exactly (bytes
// wrap), and no zeros: a sum shows who is missing.
int contribution(std::size_t index, int rank) {
  return static_cast<int>((index * 7 + static_cast<std::size_t>(rank) * 3) % kPeriod) + 1;
}

constexpr std::size_t kGathered = 127;

// What an allgather has of `rank` at `index`: no zeros, and ranks differ everywhere, or where there are more
// than a byte can tell, from the second element on.
int gathered(std::size_t index, int rank) {
  const auto number = static_cast<std::size_t>(rank);
  return static_cast<int>((index * (7 + number / kGathered) + number * 3) % kGathered) + 1;
}

// A message in the host's memory, where it is made and looked at: buffers may lie where the host cannot.
template <typename T>
class Message {
 public:
  Message(const BufferPool& pool, void* buffer, std::size_t count)
      : pool_(pool), buffer_(buffer), values_(count) {}
  // The buffer has what `rank` contributes.
  void fill(int rank) {
    fill_with([rank](std::size_t i) { return contribution(i, rank); });
  }
  void fill_with(const auto& value) {
    for (std::size_t i = 0; i < values_.size(); ++i)
      values_[i] = static_cast<T>(value(i));
    put();
  }
  void poison() {
    std::fill(values_.begin(), values_.end(), static_cast<T>(99));
    put();
  }
  // Whether element i of the buffer is the sum of what ranks first..last contributed.
  bool holds_sum(int first, int last) {
    std::array<T, kPeriod> expected{};
    for (std::size_t i = 0; i < kPeriod; ++i) {
      long long sum = 0;
      for (int rank = first; rank <= last; ++rank)
        sum += contribution(i, rank);
      expected[i] = static_cast<T>(sum);
    }
    return holds([&](std::size_t i) { return expected[i % kPeriod]; });
  }
  bool holds(const auto& value) {
    pool_.get(values_.data(), buffer_, bytes());
    for (std::size_t i = 0; i < values_.size(); ++i)
      if (values_[i] != static_cast<T>(value(i))) return false;
    return true;
  }

 private:
  std::size_t bytes() const { return values_.size() * sizeof(T); }
  void put() const { pool_.put(buffer_, values_.data(), bytes()); }

  const BufferPool& pool_;
  void* buffer_;
  std::vector<T> values_;
};

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
    Message<T>(send, input, count).fill(job.rank());
    Message<T> result(receive, output, count);
    result.poison();
    call_allreduce(side, kind, input, output, count);
    return job.all(result.holds_sum(0, job.size() - 1));
  });
}

bool allreduce_in_place_is_right(const Job& job, Side& side, Kind kind, Dtype dtype, std::size_t bytes,
                                 BufferPool& buffers) {
  return with_type(dtype, [&]<typename T>(T) {
    const std::size_t count = bytes / sizeof(T);
    void* const buffer = buffers.next();
    Message<T> message(buffers, buffer, count);
    message.fill(job.rank());
    call_allreduce(side, kind, side.in_place(), buffer, count);
    return job.all(message.holds_sum(0, job.size() - 1));
  });
}

// Each rank is the root once. Only the root has a result, and nobody's input changes.
bool reduce_is_right(const Job& job, Side& side, Dtype dtype, std::size_t bytes, BufferPool& send,
                     BufferPool& receive) {
  return with_type(dtype, [&]<typename T>(T) {
    const std::size_t count = bytes / sizeof(T);
    bool good = true;
    for (int root = 0; root < job.size(); ++root) {
      const bool receives = root == job.rank();
      void* const input = send.next();
      void* const output = receives ? receive.next() : nullptr;
      Message<T> sent(send, input, count);
      sent.fill(job.rank());
      Message<T> result(receive, output, count);
      if (receives) result.poison();
      side.reduce(input, output, count, root);
      good = (!receives || result.holds_sum(0, job.size() - 1)) && good;
      good = sent.holds_sum(job.rank(), job.rank()) && good;
    }
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
      Message<T> message(buffers, buffer, count);
      if (root == job.rank()) {
        message.fill(root);
      } else {
        message.poison();
      }
      call_bcast(side, kind, buffer, count, root);
      good = message.holds_sum(root, root) && good;
    }
    return job.all(good);
  });
}

// Nobody's input changes. What a rank did not get is 0. In place, where there is no `receive`.
bool allgather_is_right(const Job& job, Side& side, Dtype dtype, std::size_t bytes, BufferPool& send,
                        BufferPool* receive) {
  return with_type(dtype, [&]<typename T>(T) {
    const std::size_t count = bytes / sizeof(T);
    const int rank = job.rank();
    const auto mine = [rank](std::size_t i) { return gathered(i, rank); };
    const auto everybodys = [count](std::size_t i) {
      return gathered(i % count, static_cast<int>(i / count));
    };
    const bool in_place = receive == nullptr;
    void* const input = send.next();
    BufferPool& results = in_place ? send : *receive;
    void* const output = in_place ? input : receive->next();
    Message<T> sent(send, input, count);
    Message<T> result(results, output, count * static_cast<std::size_t>(job.size()));
    result.fill_with([&](std::size_t i) {
      return in_place && i / count == static_cast<std::size_t>(rank) ? mine(i % count) : 0;
    });
    if (!in_place) sent.fill_with(mine);
    side.allgather(in_place ? side.in_place() : input, output, count);
    return job.all(result.holds(everybodys) && (in_place || sent.holds(mine)));
  });
}

}  // namespace

bool collective_is_right(const Job& job, Side& side, Kind kind, Dtype dtype, std::size_t bytes,
                         BufferPool& send, BufferPool* receive) {
  if (kind == Kind::reduce) return reduce_is_right(job, side, dtype, bytes, send, *receive);
  if (kind == Kind::allgather) return allgather_is_right(job, side, dtype, bytes, send, receive);
  if (!reduces(kind)) return bcast_is_right(job, side, kind, dtype, bytes, send);
  return receive == nullptr ? allreduce_in_place_is_right(job, side, kind, dtype, bytes, send)
                            : allreduce_is_right(job, side, kind, dtype, bytes, send, *receive);
}

bool messages_are_right(const Job& job, Side& side, Dtype dtype, std::size_t bytes, BufferPool& send,
                        BufferPool& receive) {
  return with_type(dtype, [&]<typename T>(T) {
    const std::size_t count = bytes / sizeof(T);
    void* const out = send.next();
    void* const in = receive.next();
    Message<T> received(receive, in, count);
    received.poison();
    if (job.rank() == 0) {
      Message<T>(send, out, count).fill(0);
      side.send(out, count, 1);
      side.receive(in, count, 1);
    } else {
      side.receive(in, count, 0);
      side.send(in, count, 0);
    }
    return job.all(received.holds_sum(0, 0));
  });
}

bool window_is_right(const Job& job, Side& side, Dtype dtype, std::size_t bytes, std::size_t messages,
                     bool both, BufferPool& send, BufferPool& receive) {
  return with_type(dtype, [&]<typename T>(T) {
    const std::size_t count = bytes / sizeof(T);
    const std::size_t window = std::min({messages, send.count(), receive.count()});
    std::vector<void*> out(both || job.rank() == 0 ? window : 0);
    std::vector<void*> in(both || job.rank() == 1 ? window : 0);
    // Neighbours differ, and so do both directions.
    const auto content = [](std::size_t message, int from) { return static_cast<int>(2 * message) + from; };
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = send.next();
      Message<T>(send, out[i], count).fill(content(i, job.rank()));
    }
    for (void*& buffer : in) {
      buffer = receive.next();
      Message<T>(receive, buffer, count).poison();
    }
    side.exchange(out, in, count, 1 - job.rank());
    bool good = true;
    for (std::size_t i = 0; i < in.size(); ++i) {
      const int sent = content(i, 1 - job.rank());
      good = Message<T>(receive, in[i], count).holds_sum(sent, sent) && good;
    }
    return job.all(good);
  });
}

}  // namespace heddle::bench
