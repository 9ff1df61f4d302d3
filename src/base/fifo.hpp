// A first-in first-out queue on one growing array, its items addressed by position (0 is the oldest):
// allocates only when it outgrows what it ever held.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace heddle {

template <typename T>
class Fifo {
 public:
  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }
  T& operator[](std::size_t i) { return items_[(head_ + i) & (items_.size() - 1)]; }
  const T& operator[](std::size_t i) const { return items_[(head_ + i) & (items_.size() - 1)]; }
  T& front() { return (*this)[0]; }
  const T& front() const { return (*this)[0]; }
  T& back() { return (*this)[count_ - 1]; }

  void push(T item) {
    if (count_ == items_.size()) grow();
    (*this)[count_++] = std::move(item);
  }
  // Removes the oldest n.
  void pop(std::size_t n = 1) {
    for (std::size_t i = 0; i < n; ++i)
      (*this)[i] = T{};
    head_ = (head_ + n) & (items_.size() - 1);
    count_ -= n;
  }
  // Removes item i, keeping the order of the others: in no time where it is the oldest, which it mostly is.
  void erase(std::size_t i) {
    if (i == 0) return pop();
    for (; i + 1 < count_; ++i)
      (*this)[i] = std::move((*this)[i + 1]);
    (*this)[--count_] = T{};
  }

 private:
  void grow() {
    std::vector<T> larger(items_.empty() ? 4 : items_.size() * 2);  // always a power of two
    for (std::size_t i = 0; i < count_; ++i)
      larger[i] = std::move((*this)[i]);
    items_ = std::move(larger);
    head_ = 0;
  }

  std::vector<T> items_;
  std::size_t head_ = 0;
  std::size_t count_ = 0;
};

}  // namespace heddle
