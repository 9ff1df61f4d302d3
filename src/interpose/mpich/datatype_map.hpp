// MPICH's predefined datatypes and operations as heddle's element types and operations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.hpp"

namespace heddle::mpich {

// A predefined handle is 0x4c00SSII: SS the size in bytes, II the number of the type. Everything else is
// derived.
constexpr bool is_predefined_type(int type) {
  return (static_cast<unsigned>(type) & 0xff000000u) == 0x4c000000u;
}
constexpr std::size_t predefined_type_size(int type) {
  return (static_cast<unsigned>(type) >> 8) & 0xffu;
}

// One predefined type that reductions are taken over on; `operations` has a bit (1 << Op) for each served.
struct TypeRow {
  int handle = 0;
  DType type = DType::i8;
  std::uint16_t operations = 0;
};

// What reductions heddle serves: the pairs that MPI allows, that the host accepts and computes in the same
// way, and that there is a kernel for. A pair outside falls through, so that the host does what it always
// did.
class DatatypeMap {
 public:
  // `logical_is_c`: the host stores Fortran's .true. as 1, which is what the kernels give.
  explicit DatatypeMap(bool logical_is_c = true);

  // The row when `op` on `type` is served, else null; then `*op_out` is set. A few loads, no search.
  const TypeRow* find(int type, int op, Op* op_out) const {
    const auto op_index = static_cast<unsigned>(op) - kFirstOp;
    if (op_index >= kOpCount) return nullptr;
    const TypeRow& row = rows_[static_cast<unsigned>(type) % kRows];
    const Op mapped = kOps[op_index];
    if (row.handle != type || (row.operations >> static_cast<unsigned>(mapped) & 1u) == 0) return nullptr;
    *op_out = mapped;
    return &row;
  }

  const TypeRow& row(std::size_t index) const { return rows_[index]; }
  static constexpr std::size_t kRows = 128;

 private:
  static constexpr unsigned kFirstOp = 0x58000001u;  // MPI_MAX
  static constexpr Op kOps[kOpCount] = {Op::max,  Op::min, Op::sum, Op::prod, Op::land,
                                        Op::band, Op::lor, Op::bor, Op::lxor, Op::bxor};
  TypeRow rows_[kRows];
};

}  // namespace heddle::mpich
