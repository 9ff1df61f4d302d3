#include "interpose/backend/packing.hpp"

#include <climits>
#include <cstdint>
#include <cstring>

#include "interpose/backend/abi.hpp"

namespace heddle::backend {

// MPICH 4.0 refuses MPI_BOTTOM in MPI_Pack, so absolute addresses are made relative to the first of them.
class Packing::Based {
 public:
  Based(const HostMpi& mpi, const void* given, std::size_t elements, MPI_Datatype layout)
      : buffer(const_cast<void*>(given)), count(elements), type(layout), mpi_(mpi) {
    if (given != nullptr) return;
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    const int blocks = static_cast<int>(elements);
    if (elements > INT_MAX || mpi.Type_get_true_extent(layout, &lower, &extent) != MPI_SUCCESS) return;
    const MPI_Aint back = -lower;
    if (mpi.Type_create_hindexed(1, &blocks, &back, layout, &made_) != MPI_SUCCESS) return;
    mpi.Type_commit(&made_);
    buffer = reinterpret_cast<void*>(lower);
    count = 1;
    type = made_;
  }
  Based(const Based&) = delete;
  Based& operator=(const Based&) = delete;
  ~Based() {
    if (made_ != MPI_DATATYPE_NULL) mpi_.Type_free(&made_);
  }

  void* buffer;
  std::size_t count;
  MPI_Datatype type;

 private:
  const HostMpi& mpi_;
  MPI_Datatype made_ = MPI_DATATYPE_NULL;
};

// In callbacks of MPI_Finalize heddle's may be gone.
MPI_Comm Packing::comm() const {
  return self_->comm() != MPI_COMM_NULL ? self_->comm() : MPI_COMM_SELF;
}

bool Packing::check_format() const {
  const int in[3] = {1, -2, 0x12345678};
  int out[3] = {};
  int size = 0;
  int position = 0;
  return mpi_->Pack_size(3, MPI_INT, comm(), &size) == MPI_SUCCESS && size == static_cast<int>(sizeof in) &&
         mpi_->Pack(in, 3, MPI_INT, out, size, &position, comm()) == MPI_SUCCESS && position == size &&
         std::memcmp(in, out, sizeof in) == 0;
}

bool Packing::envelope_of(MPI_Datatype type, Envelope* out) const {
  if (mpi_->Type_get_envelope_c != nullptr) {
    return mpi_->Type_get_envelope_c(type, &out->integers, &out->addresses, &out->large_counts, &out->types,
                                     &out->combiner) == MPI_SUCCESS;
  }
  int integers = 0;
  int addresses = 0;
  int types = 0;
  if (mpi_->Type_get_envelope(type, &integers, &addresses, &types, &out->combiner) != MPI_SUCCESS)
    return false;
  out->integers = integers;
  out->addresses = addresses;
  out->types = types;
  return true;
}

// Contents are references to be freed, unless predefined, which pairs (MPI_DOUBLE_INT) are as well.
// Parametrised types of Fortran's are neither to Open MPI, which refuses to free them, nor to MPICH, which
// would count; they are there until MPI_Finalize.
void Packing::free_content(MPI_Datatype type) const {
  Envelope envelope;
  if (abi::predefined_size(type) > 0 || !abi::is_datatype(type) || !envelope_of(type, &envelope)) return;
  switch (envelope.combiner) {
    case MPI_COMBINER_NAMED:
    case MPI_COMBINER_F90_REAL:
    case MPI_COMBINER_F90_COMPLEX:
    case MPI_COMBINER_F90_INTEGER:
      return;
    default:
      mpi_->Type_free(&type);
  }
}

// What a type is made by, and of, where that is one other type.
struct Packing::Made {
  static constexpr int kDimensions = 4;  // of subarrays, at most
  static constexpr int kIntegers = 3 * kDimensions + 2;
  static constexpr int kAddresses = 2;
  int combiner = MPI_COMBINER_NAMED;
  int integers[kIntegers] = {};
  MPI_Aint addresses[kAddresses] = {};
  MPI_Datatype inner = MPI_DATATYPE_NULL;
};

bool Packing::made_of(MPI_Datatype type, Made* out) const {
  Envelope envelope;
  if (!envelope_of(type, &envelope) || envelope.integers > Made::kIntegers ||
      envelope.addresses > Made::kAddresses || envelope.large_counts > 0 || envelope.types != 1)
    return false;
  out->combiner = envelope.combiner;
  return mpi_->Type_get_contents(type, static_cast<int>(envelope.integers),
                                 static_cast<int>(envelope.addresses), 1, out->integers, out->addresses,
                                 &out->inner) == MPI_SUCCESS;
}

// Only what plainly is: a copy or a run of a predefined type. Equal size and extent would not be enough (a
// typemap may visit its bytes in another order). Saves the packing of MPI_Type_contiguous and MPI_Type_dup.
bool Packing::is_contiguous(MPI_Datatype type, int depth) const {
  if (abi::predefined_size(type) > 0) return true;
  Made made;
  if (depth == 0 || !made_of(type, &made)) return false;
  const bool contiguous = (made.combiner == MPI_COMBINER_DUP || made.combiner == MPI_COMBINER_CONTIGUOUS) &&
                          is_contiguous(made.inner, depth - 1);
  free_content(made.inner);
  return contiguous;
}

// From the dimension on whose elements are neighbours.
bool Packing::repeat_subarray(const Made& made, MPI_Aint extent, Strided* loops) {
  const int dimensions = made.integers[0];
  const int* const sizes = made.integers + 1;
  const int* const parts = sizes + dimensions;
  const int* const starts = parts + dimensions;
  const bool first_is_innermost = starts[dimensions] == MPI_ORDER_FORTRAN;
  MPI_Aint stride = extent;
  for (int i = 0; i < dimensions; ++i) {
    const int d = first_is_innermost ? i : dimensions - 1 - i;
    if (parts[d] <= 0 || !loops->repeat(static_cast<std::size_t>(parts[d]), stride)) return false;
    loops->move(starts[d] * stride);
    stride *= sizes[d];
  }
  return true;
}

std::optional<Strided> Packing::loops_of(MPI_Datatype type, int depth) const {
  if (const std::size_t bytes = abi::predefined_size(type); bytes > 0) return Strided(bytes);
  Made made;
  if (depth == 0 || !made_of(type, &made)) return std::nullopt;
  std::optional<Strided> loops = loops_of(made.inner, depth - 1);
  MPI_Aint unused = 0;
  MPI_Aint extent = 0;
  const bool known = mpi_->Type_get_extent(made.inner, &unused, &extent) == MPI_SUCCESS;
  free_content(made.inner);
  if (!loops.has_value() || !known) return std::nullopt;
  const auto repeat = [&](int count, std::ptrdiff_t stride) {
    return count > 0 && loops->repeat(static_cast<std::size_t>(count), stride);
  };
  bool fits = false;
  switch (made.combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED:
      fits = true;
      break;
    case MPI_COMBINER_CONTIGUOUS:
      fits = repeat(made.integers[0], extent);
      break;
    case MPI_COMBINER_VECTOR:
      fits = repeat(made.integers[1], extent) && repeat(made.integers[0], made.integers[2] * extent);
      break;
    case MPI_COMBINER_HVECTOR:
      fits = repeat(made.integers[1], extent) && repeat(made.integers[0], made.addresses[0]);
      break;
    case MPI_COMBINER_SUBARRAY:
      fits = repeat_subarray(made, extent, &*loops);
      break;
    default:
      break;
  }
  return fits ? loops : std::nullopt;
}

std::optional<Strided> Packing::loops_of(const void* buffer, std::size_t count, MPI_Datatype type) const {
  MPI_Aint unused = 0;
  MPI_Aint extent = 0;
  if (buffer == nullptr) return std::nullopt;
  std::optional<Strided> loops = loops_of(type, kDeepest);
  if (!loops.has_value() || mpi_->Type_get_extent(type, &unused, &extent) != MPI_SUCCESS ||
      !loops->repeat(count, extent))
    return std::nullopt;
  return loops;
}

std::optional<Blocks> Packing::blocks_of(MPI_Datatype type) const {
  Envelope envelope;
  if (!envelope_of(type, &envelope) || envelope.large_counts > 0 || envelope.types != 1) return std::nullopt;
  Blocks blocks;
  switch (envelope.combiner) {
    case MPI_COMBINER_INDEXED:
    case MPI_COMBINER_HINDEXED:
      break;
    case MPI_COMBINER_INDEXED_BLOCK:
    case MPI_COMBINER_HINDEXED_BLOCK:
      blocks.one_length = true;
      break;
    default:
      return std::nullopt;
  }
  blocks.integers.resize(static_cast<std::size_t>(envelope.integers));
  blocks.addresses.resize(static_cast<std::size_t>(envelope.addresses));
  MPI_Datatype inner = MPI_DATATYPE_NULL;
  if (mpi_->Type_get_contents(type, static_cast<int>(envelope.integers), static_cast<int>(envelope.addresses),
                              1, blocks.integers.data(), blocks.addresses.data(), &inner) != MPI_SUCCESS)
    return std::nullopt;
  blocks.number = static_cast<std::size_t>(blocks.integers[0]);
  MPI_Aint unused = 0;
  MPI_Aint extent = 0;
  const std::optional<Strided> loops = loops_of(inner, kDeepest);
  const bool known = mpi_->Type_get_extent(inner, &unused, &extent) == MPI_SUCCESS;
  free_content(inner);
  if (!known || !loops.has_value() || !loops->is_run() || loops->bytes() != static_cast<std::size_t>(extent))
    return std::nullopt;
  blocks.unit = loops->bytes();
  return blocks;
}

bool Packing::inspect(const void* buffer, MPI_Datatype type, Layout* out) const {
  if (const std::size_t bytes = abi::predefined_size(type); bytes > 0) {
    *out = {bytes, true};
    return true;
  }
  if (!abi::is_datatype(type)) return false;
  char nothing[1] = {};
  int position = 0;
  if (mpi_->Pack(nothing, 0, type, nothing, 0, &position, comm()) != MPI_SUCCESS) return false;
  // The handle is good; nothing below calls the user's error handler.
  MPI_Count bytes = 0;
  if (mpi_->Type_size_x(type, &bytes) != MPI_SUCCESS || bytes < 0) return false;
  if (buffer == nullptr) {
    // Absolute addresses (MPI_BOTTOM) or a mistake that the host reports.
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    if (mpi_->Type_get_true_extent(type, &lower, &extent) != MPI_SUCCESS || lower == 0) return false;
  }
  *out = {static_cast<std::size_t>(bytes), buffer != nullptr && is_contiguous(type, 2)};
  return true;
}

bool Packing::look_at(const void* buffer, MPI_Datatype type, Layout* out, bool* missing) const {
  *missing = buffer == nullptr && (!inspect(buffer, type, out) || out->contiguous);
  const std::byte somewhere{};
  return inspect(*missing ? &somewhere : buffer, type, out);
}

std::size_t Packing::most_bytes() const {
  return mpi_->Pack_c != nullptr && mpi_->Unpack_c != nullptr ? SIZE_MAX / 2 : INT_MAX;
}

bool Packing::pack(const void* buffer, std::size_t count, MPI_Datatype type, void* packed,
                   std::size_t bytes) const {
  const Based from(*mpi_, buffer, count, type);
  if (bytes <= INT_MAX && from.count <= INT_MAX) {
    int position = 0;
    return mpi_->Pack(from.buffer, static_cast<int>(from.count), from.type, packed, static_cast<int>(bytes),
                      &position, comm()) == MPI_SUCCESS &&
           static_cast<std::size_t>(position) == bytes;
  }
  MPI_Count position = 0;
  return mpi_->Pack_c(from.buffer, static_cast<MPI_Count>(from.count), from.type, packed,
                      static_cast<MPI_Count>(bytes), &position, comm()) == MPI_SUCCESS &&
         static_cast<std::size_t>(position) == bytes;
}

bool Packing::unpack(const void* packed, std::size_t bytes, void* buffer, std::size_t count,
                     MPI_Datatype type) const {
  const Based to(*mpi_, buffer, count, type);
  if (bytes <= INT_MAX && to.count <= INT_MAX) {
    int position = 0;
    return mpi_->Unpack(packed, static_cast<int>(bytes), &position, to.buffer, static_cast<int>(to.count),
                        to.type, comm()) == MPI_SUCCESS;
  }
  MPI_Count position = 0;
  return mpi_->Unpack_c(packed, static_cast<MPI_Count>(bytes), &position, to.buffer,
                        static_cast<MPI_Count>(to.count), to.type, comm()) == MPI_SUCCESS;
}

}  // namespace heddle::backend
