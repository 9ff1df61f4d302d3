// Ranks as threads of one process, with communicators made through the public C API.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <cstddef>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "heddle/heddle.h"

namespace heddle::testing_ranks {

// An allgather among threads.
class Meeting {
 public:
  explicit Meeting(int size) : size_(size), barrier_(size) {}

  void allgather(int rank, const void* mine, void* all, std::size_t bytes) {
    if (rank == 0) buffer_.resize(bytes * static_cast<std::size_t>(size_));
    barrier_.arrive_and_wait();
    if (bytes != 0) std::memcpy(buffer_.data() + static_cast<std::size_t>(rank) * bytes, mine, bytes);
    barrier_.arrive_and_wait();
    if (bytes != 0) std::memcpy(all, buffer_.data(), buffer_.size());
    barrier_.arrive_and_wait();
  }
  int size() const { return size_; }
  void barrier() { barrier_.arrive_and_wait(); }

 private:
  int size_;
  std::barrier<> barrier_;
  std::vector<std::byte> buffer_;
};

struct Seat {
  Meeting* meeting;
  int rank;
};

inline int gather_at(const void* mine, void* all, std::size_t bytes, void* context) {
  const Seat* seat = static_cast<const Seat*>(context);
  seat->meeting->allgather(seat->rank, mine, all, bytes);
  return 0;
}

// Runs `body(rank)` on `size` threads.
inline void on_threads(int size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back(body, r);
  for (std::thread& thread : threads)
    thread.join();
}

// Runs `body(comm, rank)` on `size` ranks; creation and destruction must succeed.
inline void on_ranks(int size, const std::function<void(heddle_comm_t, int)>& body) {
  Meeting meeting(size);
  on_threads(size, [&](int rank) {
    Seat seat{&meeting, rank};
    heddle_comm_t comm = nullptr;
    ASSERT_EQ(heddle_comm_create(rank, size, gather_at, &seat, nullptr, &comm), HEDDLE_OK)
        << heddle_last_error();
    body(comm, rank);
    EXPECT_EQ(heddle_comm_destroy(comm), HEDDLE_OK) << heddle_last_error();
  });
}

}  // namespace heddle::testing_ranks
