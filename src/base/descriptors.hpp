// File descriptors, which a network of sockets runs out of first.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "base/status.hpp"

namespace heddle {

// A descriptor that is closed when nobody needs it any more; -1: none.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();
  int number() const { return number_; }

 private:
  int number_;
};

struct Descriptors {
  std::size_t open = 0;   // of this process, now
  std::size_t limit = 0;  // RLIMIT_NOFILE, the soft one
};

// Looks through /proc: milliseconds where there are thousands. Where none is left for the look all are open.
Descriptors count_descriptors();

// What `call` says that met `error`: out of descriptors, with their number, or anything else.
Status no_descriptor(const std::string& call, int error);

// Whether `count` more can be opened, as far as the lowest free number tells. A microsecond.
bool has_descriptors(std::size_t count);

// Takes a new descriptor, or -1 and errno, and returns it as 3 or above: where the program has closed a
// standard stream its number is free, and what the program goes on writing to that stream would be written to
// what is ours.
int off_standard_streams(int fd);

// Connections, which others take for a sign of life, would outlive this process in a child that it forks.
// Descriptors that are noted here the child closes when it is made; of numbers from 65,536 on it keeps them.
void close_in_children(int fd);
// Of these, instead of close(2): nothing in the child, where the number may be somebody else's by now.
void close_noted(int fd);

}  // namespace heddle
