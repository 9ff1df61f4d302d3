// Where the bytes of a message lie whose datatype is made of runs of one length, in loops: vectors,
// subarrays, and those of each other. The hosts' own copies of such data are up to four times slower (Open
// MPI 4.1, of single numbers), and none of them gives a part of it alone.
#pragma once

#include <cstddef>

namespace heddle::backend {

class Strided {
 public:
  // A single run.
  explicit Strided(std::size_t bytes) : run_(bytes) {}

  // Becomes `count` of itself, each so many bytes after the one before. False where it has no room for that.
  bool repeat(std::size_t count, std::ptrdiff_t stride);
  // Begins so many bytes further on.
  void move(std::ptrdiff_t by) { begin_ += by; }

  std::size_t bytes() const;  // of data
  // Whether that is all one run at the origin.
  bool is_run() const { return loops_ == 0 && begin_ == 0; }

  // Copies the bytes of data from number `first` on, in the datatype's order: from the memory at `origin`, or
  // to it.
  void gather(const std::byte* origin, std::size_t first, std::size_t bytes, std::byte* to) const;
  void scatter(std::byte* origin, std::size_t first, std::size_t bytes, const std::byte* from) const;

 private:
  static constexpr std::size_t kMostLoops = 6;
  struct Loop {
    std::size_t count = 1;
    std::ptrdiff_t stride = 0;
  };
  template <typename Copy>
  void visit(std::size_t first, std::size_t bytes, Copy copy) const;

  std::size_t run_;
  std::ptrdiff_t begin_ = 0;
  std::size_t loops_ = 0;
  Loop loop_[kMostLoops];  // the innermost one first
};

}  // namespace heddle::backend
