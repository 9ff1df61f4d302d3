// A first-in first-out queue on one growing array: allocates only when it outgrows what it ever held.
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

  void push(T item) {
    if (count_ == items_.size()) grow();
    (*this)[count_++] = std::move(item);
  }
  void pop() {
    front() = T{};
    head_ = (head_ + 1) & (items_.size() - 1);
    --count_;
  }
  // Removes item i, keeping the order of the others.
  void erase(std::size_t i) {
    for (; i + 1 < count_; ++i)
      (*this)[i] = std::move((*this)[i + 1]);
    (*this)[--count_] = T{};
  }

 private:
  void grow() {
    std::vector<T> larger(items_.empty() ? 8 : items_.size() * 2);  // always a power of two
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
