#include "interpose/backend/packed_views.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace heddle::backend {

bool ElementsView::pack(std::size_t count, std::byte* to) {
  if (count == 0) return true;
  if (!packing_.pack(next_, count, type_, to, count * bytes_))
    return fail(Status(Code::system, "MPI_Pack failed in MPI_Bcast of a derived datatype"));
  next_ += static_cast<std::ptrdiff_t>(count) * extent_;
  return true;
}

bool ElementsView::unpack(std::size_t count, const std::byte* from) {
  if (count == 0) return true;
  if (!packing_.unpack(from, count * bytes_, next_, count, type_))
    return fail(Status(Code::system, "MPI_Unpack failed in MPI_Bcast of a derived datatype"));
  next_ += static_cast<std::ptrdiff_t>(count) * extent_;
  return true;
}

bool ElementsView::begin_one() {
  one_ = static_cast<std::byte*>(scratch_.reserve(bytes_));
  return one_ != nullptr || fail(no_room("MPI_Bcast", bytes_));
}

// The rest of an element that was begun, then whole ones, then the beginning of one.
bool ElementsView::read(std::size_t first, std::size_t bytes, std::byte* to) {
  if (const std::size_t begun = first % bytes_; begun > 0) {
    const std::size_t rest = std::min(bytes_ - begun, bytes);
    std::memcpy(to, one_ + begun, rest);
    to += rest;
    bytes -= rest;
  }
  const std::size_t whole = bytes / bytes_;
  const std::size_t beginning = bytes % bytes_;
  if (!pack(whole, to)) return false;
  if (beginning == 0) return true;
  if (!begin_one() || !pack(1, one_)) return false;
  std::memcpy(to + whole * bytes_, one_, beginning);
  return true;
}

bool ElementsView::write(std::size_t first, std::size_t bytes, const std::byte* from) {
  if (const std::size_t begun = first % bytes_; begun > 0) {
    const std::size_t rest = std::min(bytes_ - begun, bytes);
    std::memcpy(one_ + begun, from, rest);
    from += rest;
    bytes -= rest;
    if (begun + rest == bytes_ && !unpack(1, one_)) return false;
  }
  const std::size_t whole = bytes / bytes_;
  const std::size_t beginning = bytes % bytes_;
  if (!unpack(whole, from)) return false;
  if (beginning == 0) return true;
  if (!begin_one()) return false;
  std::memcpy(one_, from + whole * bytes_, beginning);
  return true;
}

Status no_room(const char* call, std::size_t bytes) {
  return Status(Code::out_of_memory, std::string(call) + " of a derived datatype: no memory for " +
                                         std::to_string(bytes) + " packed bytes");
}

}  // namespace heddle::backend
