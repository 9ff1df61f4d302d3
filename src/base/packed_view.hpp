// Data as the bytes that travel, wherever they lie in memory.
#pragma once

#include <cstddef>
#include <utility>

#include "base/status.hpp"

namespace heddle {

class PackedView {
 public:
  PackedView() = default;
  PackedView(const PackedView&) = delete;
  PackedView& operator=(const PackedView&) = delete;
  virtual ~PackedView() = default;

  // Copy as many bytes from number `first` on: all of them in order, part by part. False: that failed, and
  // status() says why.
  virtual bool read(std::size_t first, std::size_t bytes, std::byte* to) = 0;
  virtual bool write(std::size_t first, std::size_t bytes, const std::byte* from) = 0;
  const Status& status() const { return status_; }

 protected:
  bool fail(Status why) {
    status_ = std::move(why);
    return false;
  }

 private:
  Status status_;
};

}  // namespace heddle
