#include "api/arguments.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/overlap.hpp"
#include "engine/kernels/kernels.hpp"

namespace heddle::edge {
namespace {

Status bad(std::string message) {
  return Status(Code::invalid_argument, std::move(message));
}

// The number in an enum that comes from C and may hold anything: copied, because to read it as an enum would
// be undefined for a value out of range.
template <typename Enum>
int number_in(const Enum& value) {
  static_assert(sizeof(Enum) == sizeof(int));
  int number = 0;
  std::memcpy(&number, &value, sizeof(number));
  return number;
}

// Looked up once for all: finding a kernel takes fifty instructions.
bool has_meaning(DType type, Op op) {
  static const auto kPairs = [] {
    std::array<std::uint32_t, kDTypeCount> pairs{};
    for (int t = 0; t < kDTypeCount; ++t) {
      for (int o = 0; o < kOpCount; ++o) {
        if (fold_kernel(static_cast<DType>(t), static_cast<Op>(o)) != nullptr)
          pairs[static_cast<std::size_t>(t)] |= 1U << o;
      }
    }
    return pairs;
  }();
  return (kPairs[static_cast<std::size_t>(type)] >> static_cast<int>(op) & 1) != 0;
}

}  // namespace

Status check_not_null(const void* pointer, const char* what) {
  if (pointer == nullptr) return bad(std::string(what) + " is null");
  return {};
}

Status check_types(std::size_t count, const heddle_dtype& dtype, const heddle_op& op, Reduction* reduction) {
  const int type_number = number_in(dtype);
  const int op_number = number_in(op);
  if (type_number < 0 || type_number >= kDTypeCount) {
    return bad("dtype " + std::to_string(type_number) + " is not a heddle_dtype");
  }
  if (op_number < 0 || op_number >= kOpCount)
    return bad("op " + std::to_string(op_number) + " is not a heddle_op");
  reduction->type = static_cast<DType>(type_number);
  reduction->op = static_cast<Op>(op_number);
  reduction->count = count;
  if (!has_meaning(reduction->type, reduction->op)) {
    return bad(std::string("op ") + op_name(reduction->op) + " has no meaning on " +
               dtype_name(reduction->type));
  }
  if (count > static_cast<std::size_t>(PTRDIFF_MAX) / dtype_size(reduction->type)) {
    return bad("count " + std::to_string(count) + " of " + dtype_name(reduction->type) +
               " is more than memory can hold");
  }
  return {};
}

Status check_reduction(const void* sendbuf, void* recvbuf, std::size_t count, const heddle_dtype& dtype,
                       const heddle_op& op, Reduction* reduction) {
  if (Status status = check_types(count, dtype, op, reduction); !status.ok()) return status;
  reduction->in = sendbuf == HEDDLE_IN_PLACE ? recvbuf : sendbuf;
  reduction->out = recvbuf;
  if (count == 0) return {};
  if (recvbuf == HEDDLE_IN_PLACE) return bad("HEDDLE_IN_PLACE goes into sendbuf, not into recvbuf");
  if (recvbuf == nullptr) return bad("recvbuf is null and count is " + std::to_string(count));
  if (sendbuf == HEDDLE_IN_PLACE) return {};
  if (sendbuf == nullptr) return bad("sendbuf is null and count is " + std::to_string(count));
  const std::size_t bytes = count * dtype_size(reduction->type);
  if (overlap(sendbuf, bytes, recvbuf, bytes)) {
    return bad("sendbuf and recvbuf overlap; pass HEDDLE_IN_PLACE as sendbuf to reduce in place");
  }
  return {};
}

Status check_reduce(const void* sendbuf, void* recvbuf, std::size_t count, const heddle_dtype& dtype,
                    const heddle_op& op, int root, int rank, int size, Reduction* reduction) {
  HEDDLE_TRY(check_root(root, size));
  if (rank == root) return check_reduction(sendbuf, recvbuf, count, dtype, op, reduction);
  HEDDLE_TRY(check_types(count, dtype, op, reduction));
  reduction->in = sendbuf;
  if (count == 0) return {};
  if (sendbuf == HEDDLE_IN_PLACE)
    return bad("sendbuf is HEDDLE_IN_PLACE, which only the root may pass, and this is rank " +
               std::to_string(rank) + " of a reduce to rank " + std::to_string(root));
  if (sendbuf == nullptr) return bad("sendbuf is null and count is " + std::to_string(count));
  return {};
}

Status check_in_place(void* buffer, std::size_t count, const heddle_dtype& dtype, Reduction* reduction) {
  const heddle_op sum = HEDDLE_SUM;
  HEDDLE_TRY(check_types(count, dtype, sum, reduction));
  reduction->in = buffer;
  reduction->out = buffer;
  if (count == 0) return {};
  if (buffer == HEDDLE_IN_PLACE)
    return bad("buffer is HEDDLE_IN_PLACE; pass the vector itself, which is summed in place");
  if (buffer == nullptr) return bad("buffer is null and count is " + std::to_string(count));
  return {};
}

Status check_sparse_op(const heddle_op& op, Op* out) {
  const int number = number_in(op);
  if (number != HEDDLE_SUM && number != HEDDLE_MIN && number != HEDDLE_MAX)
    return bad("op " + std::to_string(number) +
               " is none of sparse vectors: HEDDLE_SUM, HEDDLE_MIN, HEDDLE_MAX");
  *out = static_cast<Op>(number);
  return {};
}

Status check_vector(const heddle_sparse* vector, const char* what, SparseView* view) {
  HEDDLE_TRY(check_not_null(vector, what));
  const auto of = [&](const char* field) { return std::string(what) + "->" + field; };
  const int index_type = number_in(vector->index_type);
  const int value_type = number_in(vector->value_type);
  if (index_type != HEDDLE_INDEX32 && index_type != HEDDLE_INDEX64)
    return bad(of("index_type") + " " + std::to_string(index_type) + " is not a heddle_index_type");
  if (value_type < 0 || value_type >= kDTypeCount)
    return bad(of("value_type") + " " + std::to_string(value_type) + " is not a heddle_dtype");
  *view = {
      vector->dimension, vector->count, static_cast<IndexType>(index_type), static_cast<DType>(value_type),
      vector->indices,   vector->values};
  if (!is_sparse_value(view->value_type))
    return bad(std::string(dtype_name(view->value_type)) + " is not a type of sparse values");
  if (view->index_type == IndexType::u32 && view->dimension > std::uint64_t{1} << 32)
    return bad(of("dimension") + " " + std::to_string(view->dimension) + " needs HEDDLE_INDEX64");
  if (view->count == 0) return {};
  if (view->indices == nullptr)
    return bad(of("indices") + " is null and count is " + std::to_string(view->count));
  if (view->values == nullptr)
    return bad(of("values") + " is null and count is " + std::to_string(view->count));
  return {};
}

Status check_dense(const void* dense, std::size_t width, const SparseView& in) {
  if (in.dimension > SIZE_MAX / width)
    return bad("a dense vector of dimension " + std::to_string(in.dimension) +
               " is more than memory can hold");
  const std::size_t bytes = in.dimension * width;
  HEDDLE_TRY(check_buffer(dense, bytes, "dense"));
  if (in.count > in.dimension) return {};  // refused with the entries, of which there are not as many
  if (overlap(dense, bytes, in.indices, in.count * index_size(in.index_type)))
    return bad("dense overlaps in->indices; give it memory of its own");
  if (overlap(dense, bytes, in.values, in.count * dtype_size(in.value_type)))
    return bad("dense overlaps in->values; give it memory of its own");
  return {};
}

Status check_buffer(const void* buffer, std::size_t bytes, const char* what) {
  if (bytes == 0) return {};
  if (buffer == nullptr) return bad(std::string(what) + " is null and bytes is " + std::to_string(bytes));
  if (buffer == HEDDLE_IN_PLACE) return bad(std::string(what) + " cannot be HEDDLE_IN_PLACE");
  if (bytes > static_cast<std::size_t>(PTRDIFF_MAX)) {
    return bad("bytes " + std::to_string(bytes) + " is more than memory can hold");
  }
  return {};
}

Status check_root(int root, int size) {
  if (root >= 0 && root < size) return {};
  return bad("root " + std::to_string(root) + " is not a rank (0 to " + std::to_string(size - 1) + ")");
}

Status check_bcast(const void* buffer, std::size_t bytes, int root, int size) {
  HEDDLE_TRY(check_buffer(buffer, bytes, "buffer"));
  if (root >= 0 && root < size) return {};  // no call more for what is nearly always so
  return check_root(root, size);
}

Status check_allgather(const void* sendbuf, const void* recvbuf, std::size_t bytes, int size,
                       const void** in) {
  *in = sendbuf == HEDDLE_IN_PLACE ? nullptr : sendbuf;
  if (bytes == 0) return {};
  const auto ranks = static_cast<std::size_t>(size);
  if (bytes > static_cast<std::size_t>(PTRDIFF_MAX) / ranks) {
    return bad("bytes " + std::to_string(bytes) + " of each of " + std::to_string(size) +
               " ranks is more than memory can hold");
  }
  if (recvbuf == HEDDLE_IN_PLACE) return bad("HEDDLE_IN_PLACE goes into sendbuf, not into recvbuf");
  HEDDLE_TRY(check_buffer(recvbuf, bytes, "recvbuf"));
  if (sendbuf == HEDDLE_IN_PLACE) return {};
  HEDDLE_TRY(check_buffer(sendbuf, bytes, "sendbuf"));
  if (!overlap(sendbuf, bytes, recvbuf, bytes * ranks)) return {};
  return bad(
      "sendbuf and recvbuf overlap; pass HEDDLE_IN_PLACE as sendbuf where what this rank gives is in its "
      "place of recvbuf");
}

Status check_peer(int peer, int rank, int size) {
  if (peer < 0 || peer >= size) {
    return bad("peer " + std::to_string(peer) + " is not a rank (0 to " + std::to_string(size - 1) + ")");
  }
  if (peer == rank) return bad("peer " + std::to_string(peer) + " is this rank itself");
  return {};
}

}  // namespace heddle::edge
