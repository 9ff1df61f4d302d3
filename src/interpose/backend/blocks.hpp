// Where the bytes of a message lie whose datatype lists its blocks one by one. The host copies these too, but
// Open MPI 4.1 takes some three times as long.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/packed_view.hpp"
#include "interpose/backend/host_mpi.hpp"

namespace heddle::backend {

// As MPI_Type_get_contents tells of indexed, hindexed, indexed_block and hindexed_block.
struct Blocks {
  std::size_t number = 0;
  std::vector<int> integers;        // the number; lengths, or one for all; places, unless they are
  std::vector<MPI_Aint> addresses;  // in bytes
  std::size_t unit = 0;             // bytes of what lengths and places count
  bool one_length = false;

  std::size_t length(std::size_t block) const {
    return static_cast<std::size_t>(integers[one_length ? 1 : 1 + block]) * unit;
  }
  std::ptrdiff_t place(std::size_t block) const {
    if (!addresses.empty()) return addresses[block];
    return integers[1 + (one_length ? 1 : number) + block] * static_cast<std::ptrdiff_t>(unit);
  }
  std::size_t bytes() const;
};

class BlocksView final : public PackedView {
 public:
  // Elements that are `extent` apart from each other.
  BlocksView(void* buffer, Blocks blocks, std::ptrdiff_t extent)
      : element_(static_cast<std::byte*>(buffer)), blocks_(std::move(blocks)), extent_(extent) {}
  bool read(std::size_t first, std::size_t bytes, std::byte* to) override;
  bool write(std::size_t first, std::size_t bytes, const std::byte* from) override;

 private:
  template <typename Copy>
  void visit(std::size_t bytes, Copy copy);

  std::byte* element_;
  Blocks blocks_;
  std::ptrdiff_t extent_;
  std::size_t block_ = 0;  // where the next byte is
  std::size_t inside_ = 0;
};

}  // namespace heddle::backend
