// A queue whose elements are addressed by position: what the schedule readers keep their open operations in.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace heddle {

// Position 0 is the oldest. A ring over one vector, so that a queue that stays short allocates once.
template <typename T>
class Fifo {
 public:
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](std::size_t i) { return ring_[(head_ + i) & (ring_.size() - 1)]; }
  const T& operator[](std::size_t i) const { return ring_[(head_ + i) & (ring_.size() - 1)]; }
  T& front() { return (*this)[0]; }
  const T& front() const { return (*this)[0]; }
  T& back() { return (*this)[size_ - 1]; }

  void push(T value) {
    if (size_ == ring_.size()) grow();
    ++size_;
    back() = std::move(value);
  }
  void pop(std::size_t n = 1) {
    head_ = (head_ + n) & (ring_.size() - 1);
    size_ -= n;
  }

 private:
  void grow() {
    std::vector<T> larger(ring_.empty() ? 4 : ring_.size() * 2);
    for (std::size_t i = 0; i < size_; ++i)
      larger[i] = std::move((*this)[i]);
    ring_ = std::move(larger);
    head_ = 0;
  }

  std::vector<T> ring_;  // length zero or a power of two
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace heddle
