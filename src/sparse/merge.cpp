#include "sparse/merge.hpp"

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "engine/kernels/kernels.hpp"

namespace heddle {
namespace {

template <typename T>
T load(const void* from, std::size_t i) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(from) + i * sizeof value, sizeof value);
  return value;
}
template <typename T>
void store(void* to, std::size_t i, T value) {
  std::memcpy(static_cast<std::byte*>(to) + i * sizeof value, &value, sizeof value);
}

// Two's complement numbers wrap, as in the dense kernels.
template <typename Value>
Value plus(Value a, Value b) {
  if constexpr (std::is_integral_v<Value>) {
    using Unsigned = std::make_unsigned_t<Value>;
    return static_cast<Value>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}

// Bits of a value that is only copied, and folded by the dense kernel of its type.
template <typename Bits>
struct ByKernel {
  using Value = Bits;
  FoldFn fold;
  Bits operator()(Bits a, Bits b) const {
    Bits result;
    const void* inputs[] = {&a, &b};
    fold(&result, nullptr, inputs, 2, 1);
    return result;
  }
};
template <typename T>
struct Sum {
  using Value = T;
  T operator()(T a, T b) const { return plus(a, b); }
};

// A quarter faster than the same without branches on which side an entry comes from, at random patterns too (Zen 5: 240 and 190
// million entries a second; copying them 2 to 5 billion). Views by value: what is stored might otherwise be their own fields, which
// would be read again each time.
template <typename Index, typename Fold>
std::size_t merge(SparseView a, SparseView b, Fold fold, void* indices, void* values) {
  using Value = typename Fold::Value;
  std::size_t i = 0;
  std::size_t j = 0;
  std::size_t out = 0;
  while (i < a.count && j < b.count) {
    const auto left = load<Index>(a.indices, i);
    const auto right = load<Index>(b.indices, j);
    if (left < right) {
      store<Index>(indices, out, left);
      store<Value>(values, out++, load<Value>(a.values, i++));
    } else if (right < left) {
      store<Index>(indices, out, right);
      store<Value>(values, out++, load<Value>(b.values, j++));
    } else {
      store<Index>(indices, out, left);
      store<Value>(values, out++, fold(load<Value>(a.values, i++), load<Value>(b.values, j++)));
    }
  }
  const bool from_a = i < a.count;
  const SparseView& rest = from_a ? a : b;
  const std::size_t at = from_a ? i : j;
  const std::size_t left = rest.count - at;
  if (left == 0) return out;
  std::memcpy(static_cast<std::byte*>(indices) + out * sizeof(Index),
              static_cast<const std::byte*>(rest.indices) + at * sizeof(Index), left * sizeof(Index));
  std::memcpy(static_cast<std::byte*>(values) + out * sizeof(Value),
              static_cast<const std::byte*>(rest.values) + at * sizeof(Value), left * sizeof(Value));
  return out + left;
}

template <typename Index>
std::size_t merge_values(const SparseView& a, const SparseView& b, Op op, void* indices, void* values) {
  const FoldFn fold = fold_kernel(a.value_type, op);
  if (op == Op::sum) {
    switch (a.value_type) {
      case DType::f32:
        return merge<Index>(a, b, Sum<float>{}, indices, values);
      case DType::f64:
        return merge<Index>(a, b, Sum<double>{}, indices, values);
      case DType::i32:
        return merge<Index>(a, b, Sum<std::int32_t>{}, indices, values);
      case DType::i64:
        return merge<Index>(a, b, Sum<std::int64_t>{}, indices, values);
      default:
        break;
    }
  }
  switch (dtype_size(a.value_type)) {
    case 2:
      return merge<Index>(a, b, ByKernel<std::uint16_t>{fold}, indices, values);
    case 4:
      return merge<Index>(a, b, ByKernel<std::uint32_t>{fold}, indices, values);
    default:
      return merge<Index>(a, b, ByKernel<std::uint64_t>{fold}, indices, values);
  }
}

}  // namespace

std::size_t merge_sparse(const SparseView& a, const SparseView& b, Op op, void* indices, void* values) {
  return a.index_type == IndexType::u32 ? merge_values<std::uint32_t>(a, b, op, indices, values)
                                        : merge_values<std::uint64_t>(a, b, op, indices, values);
}

std::size_t fold_sparse(std::span<const SparseView> streams, Op op, void* indices, void* values) {
  SparseView all = streams[0];
  std::vector<std::byte> i;
  std::vector<std::byte> v;
  for (std::size_t k = 1; k < streams.size(); ++k) {
    std::vector<std::byte> ni((all.count + streams[k].count) * index_size(all.index_type) + 1);
    std::vector<std::byte> nv((all.count + streams[k].count) * dtype_size(all.value_type) + 1);
    all.count = merge_sparse(all, streams[k], op, ni.data(), nv.data());
    i = std::move(ni);
    v = std::move(nv);
    all.indices = i.data();
    all.values = v.data();
  }
  if (all.count == 0) return 0;
  std::memcpy(indices, all.indices, all.count * index_size(all.index_type));
  std::memcpy(values, all.values, all.count * dtype_size(all.value_type));
  return all.count;
}

}  // namespace heddle
