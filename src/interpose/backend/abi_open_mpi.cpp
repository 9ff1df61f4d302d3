#include "interpose/backend/abi.hpp"

#include <array>
#include <bitset>
#include <set>
#include <vector>

namespace heddle::backend::abi {
namespace {

struct Size {
  MPI_Datatype type = nullptr;
  std::size_t bytes = 0;
};

// What it says of Fortran's types depends on the library.
class PredefinedSizes {
 public:
  PredefinedSizes() {
    const Size all[] = {{MPI_CHAR, 1},
                        {MPI_SIGNED_CHAR, 1},
                        {MPI_UNSIGNED_CHAR, 1},
                        {MPI_BYTE, 1},
                        {MPI_PACKED, 1},
                        {MPI_WCHAR, sizeof(wchar_t)},
                        {MPI_SHORT, sizeof(short)},
                        {MPI_UNSIGNED_SHORT, sizeof(short)},
                        {MPI_INT, sizeof(int)},
                        {MPI_UNSIGNED, sizeof(int)},
                        {MPI_LONG, sizeof(long)},
                        {MPI_UNSIGNED_LONG, sizeof(long)},
                        {MPI_LONG_LONG_INT, sizeof(long long)},
                        {MPI_UNSIGNED_LONG_LONG, sizeof(long long)},
                        {MPI_FLOAT, sizeof(float)},
                        {MPI_DOUBLE, sizeof(double)},
                        {MPI_LONG_DOUBLE, sizeof(long double)},
                        {MPI_INT8_T, 1},
                        {MPI_INT16_T, 2},
                        {MPI_INT32_T, 4},
                        {MPI_INT64_T, 8},
                        {MPI_UINT8_T, 1},
                        {MPI_UINT16_T, 2},
                        {MPI_UINT32_T, 4},
                        {MPI_UINT64_T, 8},
                        {MPI_AINT, sizeof(MPI_Aint)},
                        {MPI_OFFSET, sizeof(MPI_Offset)},
                        {MPI_COUNT, sizeof(MPI_Count)},
                        {MPI_C_BOOL, 1},
                        {MPI_C_FLOAT_COMPLEX, 2 * sizeof(float)},
                        {MPI_C_DOUBLE_COMPLEX, 2 * sizeof(double)},
                        {MPI_C_LONG_DOUBLE_COMPLEX, 2 * sizeof(long double)}};
    std::vector<MPI_Datatype> types;
    for (const Size& one : all)
      types.push_back(one.type);
    slots_.fit(types);
    for (const Size& one : all)
      sizes_[slots_.of(one.type)] = one;
  }
  std::size_t of(MPI_Datatype type) const {
    const Size& size = sizes_[slots_.of(type)];
    return size.type == type ? size.bytes : 0;
  }

 private:
  DatatypeSlots slots_;
  std::array<Size, DatatypeSlots::kSlots> sizes_;
};

}  // namespace

// Where two meet another factor is tried: one in some ten is good, since they are few beside the slots.
void DatatypeSlots::fit(std::span<const MPI_Datatype> types) {
  // Two names may stand for one object, in another version of the library.
  const std::size_t different = std::set<MPI_Datatype>(types.begin(), types.end()).size();
  for (factor_ = 0x9E3779B1u;; factor_ += 2) {
    std::bitset<kSlots> taken;
    for (const MPI_Datatype type : types)
      taken.set(of(type));
    if (taken.count() == different) return;
  }
}

std::size_t predefined_size(MPI_Datatype type) {
  static const PredefinedSizes sizes;
  return sizes.of(type);
}

std::size_t size_of(const HostMpi& mpi, MPI_Datatype type) {
  MPI_Count bytes = 0;
  if (!is_datatype(type) || mpi.Type_size_x(type, &bytes) != MPI_SUCCESS || bytes < 0) return 0;
  return static_cast<std::size_t>(bytes);
}

bool find_op(MPI_Op op, Op* out) {
  const struct {
    MPI_Op op;
    Op mapped;
  } all[kOpCount] = {{MPI_SUM, Op::sum},   {MPI_MAX, Op::max},  {MPI_MIN, Op::min},   {MPI_PROD, Op::prod},
                     {MPI_LAND, Op::land}, {MPI_LOR, Op::lor},  {MPI_LXOR, Op::lxor}, {MPI_BAND, Op::band},
                     {MPI_BOR, Op::bor},   {MPI_BXOR, Op::bxor}};
  for (const auto& one : all) {
    if (one.op != op) continue;
    *out = one.mapped;
    return true;
  }
  return false;
}

}  // namespace heddle::backend::abi
