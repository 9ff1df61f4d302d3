#include "interpose/backend/datatype_map.hpp"

#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include "engine/kernels/kernels.hpp"
#include "interpose/backend/element_types.hpp"
#include "interpose/backend/host_mpi.hpp"

namespace heddle::backend {
namespace {

constexpr std::uint16_t bit(Op op) {
  return static_cast<std::uint16_t>(1u << static_cast<unsigned>(op));
}
constexpr std::uint16_t kArithmetic = bit(Op::sum) | bit(Op::prod);
constexpr std::uint16_t kOrder = bit(Op::min) | bit(Op::max);
constexpr std::uint16_t kLogic = bit(Op::land) | bit(Op::lor) | bit(Op::lxor);
constexpr std::uint16_t kBits = bit(Op::band) | bit(Op::bor) | bit(Op::bxor);
constexpr std::uint16_t kInteger = kArithmetic | kOrder | kLogic | kBits;
constexpr std::uint16_t kReal = kArithmetic | kOrder;

template <typename T>
constexpr DType integer_type() {
  constexpr bool is_signed = std::is_signed_v<T>;
  if constexpr (sizeof(T) == 1) return is_signed ? DType::i8 : DType::u8;
  if constexpr (sizeof(T) == 2) return is_signed ? DType::i16 : DType::u16;
  if constexpr (sizeof(T) == 4) return is_signed ? DType::i32 : DType::u32;
  return is_signed ? DType::i64 : DType::u64;
}

// Not here, so left to the host: MPI_WCHAR, MPI_PACKED and pairs (no operation but pairs' own), MPI_REAL16
// and MPI_COMPLEX32 (their format depends on how the host was built), MPI_REAL2 and MPIX_C_FLOAT16 (the host
// rounds after every step), MPI_INTEGER16.
const TypeRow kTypes[] = {
    {MPI_SIGNED_CHAR, DType::i8, kInteger},
    {MPI_UNSIGNED_CHAR, DType::u8, kInteger},
    {MPI_BYTE, DType::u8, kBits},
    {MPI_SHORT, DType::i16, kInteger},
    {MPI_UNSIGNED_SHORT, DType::u16, kInteger},
    {MPI_INT, DType::i32, kInteger},
    {MPI_UNSIGNED, DType::u32, kInteger},
    {MPI_LONG, integer_type<long>(), kInteger},
    {MPI_UNSIGNED_LONG, integer_type<unsigned long>(), kInteger},
    {MPI_LONG_LONG_INT, DType::i64, kInteger},
    {MPI_UNSIGNED_LONG_LONG, DType::u64, kInteger},
    {MPI_FLOAT, DType::f32, kReal},
    {MPI_DOUBLE, DType::f64, kReal},
    {MPI_LONG_DOUBLE, DType::f80, kReal},
    {MPI_INT8_T, DType::i8, kInteger},
    {MPI_INT16_T, DType::i16, kInteger},
    {MPI_INT32_T, DType::i32, kInteger},
    {MPI_INT64_T, DType::i64, kInteger},
    {MPI_UINT8_T, DType::u8, kInteger},
    {MPI_UINT16_T, DType::u16, kInteger},
    {MPI_UINT32_T, DType::u32, kInteger},
    {MPI_UINT64_T, DType::u64, kInteger},
    {MPI_AINT, integer_type<MPI_Aint>(), kInteger},
    {MPI_OFFSET, integer_type<MPI_Offset>(), kInteger},
    {MPI_COUNT, integer_type<MPI_Count>(), kInteger},
    {MPI_C_BOOL, DType::u8, kLogic},
    {MPI_C_FLOAT_COMPLEX, DType::c32, kArithmetic},
    {MPI_C_DOUBLE_COMPLEX, DType::c64, kArithmetic},
    {MPI_C_LONG_DOUBLE_COMPLEX, DType::c80, kArithmetic},
    {MPI_CXX_BOOL, DType::u8, kLogic},
    {MPI_CXX_FLOAT_COMPLEX, DType::c32, kArithmetic},
    {MPI_CXX_DOUBLE_COMPLEX, DType::c64, kArithmetic},
    {MPI_CXX_LONG_DOUBLE_COMPLEX, DType::c80, kArithmetic},
    {MPI_LOGICAL, DType::i32, kLogic},
    {MPI_INTEGER, DType::i32, kInteger},
    {MPI_INTEGER1, DType::i8, kInteger},
    {MPI_INTEGER2, DType::i16, kInteger},
    {MPI_INTEGER4, DType::i32, kInteger},
    {MPI_INTEGER8, DType::i64, kInteger},
    {MPI_REAL, DType::f32, kReal},
    {MPI_REAL4, DType::f32, kReal},
    {MPI_REAL8, DType::f64, kReal},
    {MPI_DOUBLE_PRECISION, DType::f64, kReal},
    {MPI_COMPLEX, DType::c32, kArithmetic},
    {MPI_COMPLEX8, DType::c32, kArithmetic},
    {MPI_COMPLEX16, DType::c64, kArithmetic},
    {MPI_DOUBLE_COMPLEX, DType::c64, kArithmetic},
};

// Full vectors of any width and what is left over: Open MPI 4.1 adds integers of 8 and 16 bits with
// saturation in the one and going round in the other.
constexpr std::size_t kTrials = 135;

// Values on which a wrong type or operation shows: both signs, the top bit, sums that have no room, and small
// numbers, in pairs of any two.
template <typename T>
void fill(void* first, void* second, std::size_t parts) {
  constexpr bool whole = std::is_integral_v<T>;
  const T large = whole ? static_cast<T>(std::numeric_limits<T>::max() - T(27)) : T(0.25);
  const T values[3] = {static_cast<T>(whole ? T(-56) : T(-2.5)), T(3), large};
  for (std::size_t i = 0; i < kTrials * parts; ++i) {
    static_cast<T*>(first)[i] = values[i / 3 % 3];
    static_cast<T*>(second)[i] = values[i % 3];
  }
}

void fill_for(DType type, bool logical, void* first, void* second) {
  if (logical) {
    // 0 and 1 in elements of whatever size; two of each.
    const std::size_t bytes = dtype_size(type);
    std::memset(first, 0, kTrials * bytes);
    std::memset(second, 0, kTrials * bytes);
    for (std::size_t i = 0; i < kTrials; ++i) {
      static_cast<unsigned char*>(first)[i * bytes] = i / 3 % 3 > 0;
      static_cast<unsigned char*>(second)[i * bytes] = i % 3 > 0;
    }
    return;
  }
  (void)with_type(type, false, [&](auto like) {
    using T = decltype(like);
    using Part = typename RealOf<T>::type;
    fill<Part>(first, second, sizeof(T) / sizeof(Part));
    return true;
  });
}

// As memcmp, but for the padding of long double.
bool same_values(DType type, const std::byte* a, const std::byte* b) {
  const bool padded = type == DType::f80 || type == DType::c80;
  const std::size_t step = padded ? 16 : dtype_size(type);
  const std::size_t used = padded ? 10 : step;
  for (std::size_t at = 0; at < kTrials * dtype_size(type); at += step) {
    if (std::memcmp(a + at, b + at, used) != 0) return false;
  }
  return true;
}

const MPI_Op kHostOps[kOpCount] = {MPI_SUM, MPI_PROD, MPI_MIN,  MPI_MAX, MPI_LAND,
                                   MPI_LOR, MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR};

// On `comm`, of this rank alone, a pair that the host refuses is no error of the user's: MPI_Reduce_local,
// which has no communicator, would tell the user's error handler. MPICH 5 refuses MPI_LAND of Fortran's
// integers, for example.
bool agrees(const HostMpi& mpi, MPI_Comm comm, const TypeRow& row, Op op) {
  // Not on the stack: the thread may have a small one.
  static_assert(__STDCPP_DEFAULT_NEW_ALIGNMENT__ >= 16);
  constexpr std::size_t kBytes = kTrials * 32;
  const auto memory = std::make_unique<std::byte[]>(3 * kBytes);
  std::byte* const first = memory.get();
  std::byte* const second = first + kBytes;
  std::byte* const ours = second + kBytes;
  fill_for(row.type, row.operations == kLogic, first, second);
  const void* inputs[2] = {first, second};
  fold_kernel(row.type, op)(ours, nullptr, inputs, 2, kTrials);
  const MPI_Op host_op = kHostOps[static_cast<int>(op)];
  alignas(16) std::byte unused[32];
  return mpi.Allreduce(first, unused, 1, row.handle, host_op, comm) == MPI_SUCCESS &&
         mpi.Reduce_local(first, second, kTrials, row.handle, host_op) == MPI_SUCCESS &&
         same_values(row.type, ours, second);
}

static_assert(std::size(kTypes) <= std::tuple_size_v<Pairs>);

}  // namespace

DatatypeMap::DatatypeMap(const HostMpi& mpi, MPI_Comm self) : mpi_(&mpi), self_(self) {
  std::vector<MPI_Datatype> handles;
  for (const TypeRow& type : kTypes)
    handles.push_back(type.handle);
  slots_.fit(handles);
  for (const TypeRow& type : kTypes) {
    if (abi::size_of(mpi, type.handle) != dtype_size(type.type)) continue;
    Row& row = rows_[slots_.of(type.handle)];
    static_cast<TypeRow&>(row) = type;
    row.place = static_cast<std::size_t>(&type - kTypes);
  }
}

std::size_t DatatypeMap::known_size(MPI_Datatype type, MPI_Op op) const {
  Op mapped{};
  const Row& row = rows_[slots_.of(type)];
  const bool known = abi::find_op(op, &mapped) && row.handle == type && (row.operations & bit(mapped)) != 0 &&
                     fold_kernel(row.type, mapped) != nullptr;
  return known ? dtype_size(row.type) : 0;
}

bool DatatypeMap::has(const Pairs& pairs, MPI_Datatype type, MPI_Op op) const {
  Op mapped{};
  const Row& row = rows_[slots_.of(type)];
  return abi::find_op(op, &mapped) && row.handle == type && (pairs[row.place] & bit(mapped)) != 0;
}

const Pairs& DatatypeMap::host_pairs() {
  const std::lock_guard lock(asking_);
  if (asked_) return pairs_;
  for (Row& row : rows_) {
    std::uint16_t served = 0;
    for (std::size_t i = 0; i < kOpCount; ++i) {
      const auto op = static_cast<Op>(i);
      if ((row.operations & bit(op)) != 0 && fold_kernel(row.type, op) != nullptr &&
          agrees(*mpi_, self_, row, op))
        served |= bit(op);
    }
    if (row.operations != 0) pairs_[row.place] = served;
    row.served.store(served, std::memory_order_relaxed);
  }
  asked_ = true;
  return pairs_;
}

std::string DatatypeMap::describe_missing(const Pairs& some, const Pairs& all) {
  std::string text;
  for (std::size_t row = 0; row < std::size(kTypes); ++row) {
    for (std::size_t i = 0; i < kOpCount; ++i) {
      const auto op = static_cast<Op>(i);
      if ((some[row] & ~all[row] & bit(op)) == 0) continue;
      const std::string pair = std::string(dtype_name(kTypes[row].type)) + " " + op_name(op);
      if (text.find(pair) == std::string::npos) text += (text.empty() ? "" : ", ") + pair;
    }
  }
  return text;
}

}  // namespace heddle::backend
