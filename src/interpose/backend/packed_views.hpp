// Messages of derived datatypes as the bytes that travel, part by part.
#pragma once

#include <cstddef>

#include "base/packed_view.hpp"
#include "interpose/backend/comm_state.hpp"
#include "interpose/backend/packing.hpp"
#include "interpose/backend/strided.hpp"

namespace heddle::backend {

// There is none for as many packed bytes of a call.
Status no_room(const char* call, std::size_t bytes);

class StridedView final : public PackedView {
 public:
  StridedView(void* origin, const Strided& layout)
      : origin_(static_cast<std::byte*>(origin)), layout_(layout) {}
  bool read(std::size_t first, std::size_t bytes, std::byte* to) override {
    layout_.gather(origin_, first, bytes, to);
    return true;
  }
  bool write(std::size_t first, std::size_t bytes, const std::byte* from) override {
    layout_.scatter(origin_, first, bytes, from);
    return true;
  }

 private:
  std::byte* origin_;
  const Strided layout_;
};

// Of any datatype: the host packs whole elements. From MPI_BOTTOM on all in one part, since there is no
// pointer to the second one.
class ElementsView final : public PackedView {
 public:
  // `extent`: from one element to the next. `scratch` takes one of which a part is asked for.
  ElementsView(const Packing& packing, void* buffer, MPI_Datatype type, std::size_t element_bytes,
               std::ptrdiff_t extent, Scratch& scratch)
      : packing_(packing),
        next_(static_cast<std::byte*>(buffer)),
        type_(type),
        bytes_(element_bytes),
        extent_(extent),
        scratch_(scratch) {}
  bool read(std::size_t first, std::size_t bytes, std::byte* to) override;
  bool write(std::size_t first, std::size_t bytes, const std::byte* from) override;

 private:
  bool pack(std::size_t count, std::byte* to);
  bool unpack(std::size_t count, const std::byte* from);
  bool begin_one();

  const Packing& packing_;
  std::byte* next_;
  MPI_Datatype type_;
  std::size_t bytes_;
  std::ptrdiff_t extent_;
  Scratch& scratch_;
  std::byte* one_ = nullptr;
};

}  // namespace heddle::backend
