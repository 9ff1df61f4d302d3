#include "sparse_twins.hpp"

#include "gpu/kernels/sparse_list.hpp"

namespace heddle::test {
namespace {

using namespace gpu::kernels;

// Of nothing there is no address.
template <typename Address>
bool translate_one(Address& address, std::size_t bytes, const Reach& reach) {
  if (address == nullptr || bytes == 0) return true;
  address = reinterpret_cast<Address>(reach(address, bytes));
  return address != nullptr;
}

bool translate_source(Source& source, std::size_t value_bytes, std::size_t index_bytes, const Reach& reach) {
  return translate_one(source.values, source.count * value_bytes, reach) &&
         translate_one(source.list_indices, source.list_capacity * index_bytes, reach) &&
         translate_one(source.list_values, source.list_capacity * value_bytes, reach);
}

template <typename Bits, typename Index>
bool translate_selection(void* arguments, const Reach& reach) {
  auto& a = *static_cast<SelectArguments*>(arguments);
  return translate_source(a.source, sizeof(Bits), sizeof(Index), reach) &&
         translate_one(a.indices, a.capacity * sizeof(Index), reach) &&
         translate_one(a.values, a.capacity * sizeof(Bits), reach) &&
         translate_one(a.needed, sizeof *a.needed, reach) &&
         translate_one(a.workspace, sizeof *a.workspace, reach);
}

template <typename Bits, typename Index, Pass kPass>
void run_selection(const void* arguments, unsigned blocks) {
  typename PassShared<kPass>::Type shared;
  for (unsigned block = blocks; block-- > 0;)
    select_by<Bits, Index, kPass>(Block{block, blocks}, *static_cast<const SelectArguments*>(arguments),
                                  shared);
}

bool translate_digits(void* arguments, const Reach& reach) {
  auto& a = *static_cast<DigitArguments*>(arguments);
  // Indices are not read.
  return translate_source(a.source, sizeof(float), 1, reach) &&
         translate_one(a.workspace, sizeof *a.workspace, reach);
}

void run_digits(const void* arguments, unsigned blocks) {
  DigitShared shared;
  for (unsigned block = blocks; block-- > 0;)
    count_digits(Block{block, blocks}, *static_cast<const DigitArguments*>(arguments), shared);
}

template <class Element, class Index>
bool translate_scatter(void* arguments, const Reach& reach) {
  auto& a = *static_cast<ScatterArguments*>(arguments);
  return translate_one(a.indices, a.count * sizeof(Index), reach) &&
         translate_one(a.values, a.count * sizeof(typename Element::Stored), reach) &&
         translate_one(a.counted, sizeof *a.counted, reach) &&
         translate_one(a.dense, a.dimension * sizeof(typename Element::Stored), reach);
}

template <class Element, class Index, class Operation>
void run_scatter(const void* arguments, unsigned blocks) {
  for (unsigned block = blocks; block-- > 0;) {
    for (unsigned thread = kThreads; thread-- > 0;)
      scatter_share<Element, Index, Operation>(*static_cast<const ScatterArguments*>(arguments),
                                               Thread{block, blocks, thread});
  }
}

template <class Element>
bool translate_list(EntryList& list, const Reach& reach) {
  return translate_one(list.indices, list.count * (list.wide != 0 ? 8 : 4), reach) &&
         translate_one(list.values, list.count * sizeof(typename Element::Stored), reach) &&
         translate_one(list.counted, sizeof *list.counted, reach);
}

template <class Element>
bool translate_merge(void* arguments, const Reach& reach) {
  auto& a = *static_cast<MergeArguments*>(arguments);
  for (MergeRoom* room = a.rooms; room != a.rooms + a.n_rooms; ++room) {
    if (!translate_one(room->indices, room->capacity * (room->wide != 0 ? 8 : 4), reach) ||
        !translate_one(room->values, room->capacity * sizeof(typename Element::Stored), reach))
      return false;
  }
  return translate_list<Element>(a.first, reach) && translate_list<Element>(a.second, reach) &&
         translate_one(a.needed, sizeof *a.needed, reach) &&
         translate_one(a.broken, sizeof *a.broken, reach) && translate_one(a.told, sizeof *a.told, reach) &&
         translate_one(a.told_broken, sizeof *a.told_broken, reach) &&
         translate_one(a.workspace, sizeof *a.workspace, reach);
}

template <class Element, class Index>
void run_merge(const void* arguments, unsigned blocks) {
  MergeShared<Index, typename Element::Stored> shared;
  for (unsigned block = blocks; block-- > 0;)
    merge_entries<Element, Index>(Block{block, blocks}, *static_cast<const MergeArguments*>(arguments),
                                  shared);
}

template <typename Stored, typename Index>
bool translate_spread(void* arguments, const Reach& reach) {
  auto& a = *static_cast<SpreadArguments*>(arguments);
  for (unsigned r = 0; r < a.n_outputs; ++r) {
    if (!translate_one(a.outputs[r], a.dimension * sizeof(Stored), reach)) return false;
  }
  return translate_one(a.indices, a.count * sizeof(Index), reach) &&
         translate_one(a.values, a.count * sizeof(Stored), reach) &&
         translate_one(a.counted, sizeof *a.counted, reach) &&
         translate_one(a.broken, sizeof *a.broken, reach);
}

template <typename Stored, typename Index>
void run_spread(const void* arguments, unsigned blocks) {
  SpreadShared shared;
  for (unsigned block = blocks; block-- > 0;)
    spread_entries<Stored, Index>(Block{block, blocks}, *static_cast<const SpreadArguments*>(arguments),
                                  shared);
}

template <class Index>
bool translate_check(void* arguments, const Reach& reach) {
  auto& a = *static_cast<CheckArguments*>(arguments);
  return translate_one(a.indices, a.count * sizeof(Index), reach) &&
         translate_one(a.broken, sizeof *a.broken, reach);
}

template <class Index>
void run_check(const void* arguments, unsigned blocks) {
  for (unsigned block = blocks; block-- > 0;) {
    for (unsigned thread = kThreads; thread-- > 0;)
      check_share<Index>(*static_cast<const CheckArguments*>(arguments), Thread{block, blocks, thread});
  }
}

template <class Index>
bool translate_forget(void* arguments, const Reach& reach) {
  auto& a = *static_cast<ForgetArguments*>(arguments);
  return translate_one(a.indices, a.capacity * sizeof(Index), reach) &&
         translate_one(a.values, a.capacity * sizeof(float), reach) &&
         translate_one(a.count, sizeof *a.count, reach) &&
         translate_one(a.vector, a.dimension * sizeof(float), reach) &&
         translate_one(a.some_finite, sizeof *a.some_finite, reach);
}

template <class Index>
void run_forget(const void* arguments, unsigned blocks) {
  for (unsigned block = blocks; block-- > 0;) {
    for (unsigned thread = kThreads; thread-- > 0;)
      forget_share<Index>(*static_cast<const ForgetArguments*>(arguments), Thread{block, blocks, thread});
  }
}

void run_forget_rest(const void* arguments, unsigned blocks) {
  for (unsigned block = blocks; block-- > 0;) {
    for (unsigned thread = kThreads; thread-- > 0;)
      forget_rest_share(*static_cast<const ForgetArguments*>(arguments), Thread{block, blocks, thread});
  }
}

// Of all buckets.
template <class Code>
std::size_t code_bytes_of(std::uint64_t count, std::uint64_t bucket) {
  const std::uint64_t rest = count % bucket;
  return count / bucket * Buckets<Code>(count, bucket).bytes +
         (rest > 0 ? Buckets<Code>(rest, rest).bytes : 0);
}

template <class Code>
bool translate_quantise(void* arguments, const Reach& reach) {
  auto& a = *static_cast<QuantiseArguments*>(arguments);
  return translate_one(a.gradient, a.count * sizeof(float), reach) &&
         translate_one(a.residual, a.count * sizeof(float), reach) &&
         translate_one(a.left_out, a.count * sizeof(float), reach) &&
         translate_one(a.codes, code_bytes_of<Code>(a.count, a.bucket), reach);
}

template <class Code>
void run_quantise(const void* arguments, unsigned blocks) {
  typename Code::Shared shared;
  for (unsigned block = blocks; block-- > 0;)
    Code::quantise(Block{block, blocks}, *static_cast<const QuantiseArguments*>(arguments), shared);
}

template <class Code>
bool translate_dequantise(void* arguments, const Reach& reach) {
  auto& a = *static_cast<DequantiseArguments*>(arguments);
  bool is_there =
      translate_one(a.values, a.count * sizeof(float), reach) && translate_one(a.bad, sizeof *a.bad, reach);
  for (unsigned k = 0; k < a.n_inputs; ++k)
    is_there = is_there && translate_one(a.codes[k], code_bytes_of<Code>(a.count, a.bucket), reach);
  return is_there;
}

template <class Code>
void run_dequantise(const void* arguments, unsigned blocks) {
  for (unsigned block = blocks; block-- > 0;) {
    for (unsigned thread = kThreads; thread-- > 0;)
      dequantise_share<Code>(*static_cast<const DequantiseArguments*>(arguments),
                             Thread{block, blocks, thread});
  }
}

template <class Index>
bool translate_pack_bitmap(void* arguments, const Reach& reach) {
  auto& a = *static_cast<PackBitmapArguments*>(arguments);
  return translate_one(a.indices, a.count * sizeof(Index), reach) &&
         translate_one(a.codes, a.span / 8 + (a.span % 8 != 0 ? 1 : 0), reach);
}

template <class Index>
void run_pack_bitmap(const void* arguments, unsigned blocks) {
  for (unsigned block = blocks; block-- > 0;) {
    for (unsigned thread = kThreads; thread-- > 0;)
      pack_bitmap_share<Index>(*static_cast<const PackBitmapArguments*>(arguments),
                               Thread{block, blocks, thread});
  }
}

template <class Index>
bool translate_pack_delta(void* arguments, const Reach& reach) {
  auto& a = *static_cast<PackDeltaArguments*>(arguments);
  return translate_one(a.indices, a.count * sizeof(Index), reach) &&
         translate_one(a.codes, a.capacity, reach) && translate_one(a.needed, sizeof *a.needed, reach) &&
         translate_one(a.workspace, sizeof *a.workspace, reach);
}

template <class Index>
void run_pack_delta(const void* arguments, unsigned blocks) {
  PackShared<Index> shared;
  for (unsigned block = blocks; block-- > 0;)
    pack_delta<Index>(Block{block, blocks}, *static_cast<const PackDeltaArguments*>(arguments), shared);
}

// `bytes`: of the codes.
template <class Index>
bool translate_unpack(UnpackArguments& a, std::uint64_t bytes, const Reach& reach) {
  return translate_one(a.codes, bytes, reach) && translate_one(a.indices, a.count * sizeof(Index), reach) &&
         translate_one(a.needed, sizeof *a.needed, reach) && translate_one(a.bad, sizeof *a.bad, reach) &&
         translate_one(a.workspace, sizeof *a.workspace, reach);
}

template <class Index>
bool translate_unpack_bitmap(void* arguments, const Reach& reach) {
  auto& a = *static_cast<UnpackArguments*>(arguments);
  return translate_unpack<Index>(a, a.span / 8 + (a.span % 8 != 0 ? 1 : 0), reach);
}

template <class Index>
bool translate_unpack_delta(void* arguments, const Reach& reach) {
  auto& a = *static_cast<UnpackArguments*>(arguments);
  return translate_unpack<Index>(a, a.bytes, reach);
}

template <class Index>
void run_unpack_bitmap(const void* arguments, unsigned blocks) {
  BitmapShared shared;
  for (unsigned block = blocks; block-- > 0;)
    unpack_bitmap<Index>(Block{block, blocks}, *static_cast<const UnpackArguments*>(arguments), shared);
}

template <class Index>
void run_unpack_delta(const void* arguments, unsigned blocks) {
  UnpackShared<Index> shared;
  for (unsigned block = blocks; block-- > 0;)
    unpack_delta<Index>(Block{block, blocks}, *static_cast<const UnpackArguments*>(arguments), shared);
}

#define HEDDLE_CHECK_TWIN(name, Index) \
  SparseTwin{"heddle_" #name, sizeof(CheckArguments), &translate_check<Index>, &run_check<Index>},
#define HEDDLE_FORGET_TWIN(name, Index) \
  SparseTwin{"heddle_" #name, sizeof(ForgetArguments), &translate_forget<Index>, &run_forget<Index>},
#define HEDDLE_PACK_BITMAP_TWIN(name, Index)                                              \
  SparseTwin{"heddle_" #name, sizeof(PackBitmapArguments), &translate_pack_bitmap<Index>, \
             &run_pack_bitmap<Index>},
#define HEDDLE_UNPACK_BITMAP_TWIN(name, Index)                                          \
  SparseTwin{"heddle_" #name, sizeof(UnpackArguments), &translate_unpack_bitmap<Index>, \
             &run_unpack_bitmap<Index>},
#define HEDDLE_PACK_DELTA_TWIN(name, Index)                                             \
  SparseTwin{"heddle_" #name, sizeof(PackDeltaArguments), &translate_pack_delta<Index>, \
             &run_pack_delta<Index>},
#define HEDDLE_UNPACK_DELTA_TWIN(name, Index)                                          \
  SparseTwin{"heddle_" #name, sizeof(UnpackArguments), &translate_unpack_delta<Index>, \
             &run_unpack_delta<Index>},
#define HEDDLE_QUANTISE_TWIN(name, Code) \
  SparseTwin{"heddle_" #name, sizeof(QuantiseArguments), &translate_quantise<Code>, &run_quantise<Code>},
#define HEDDLE_DEQUANTISE_TWIN(name, Code)                                              \
  SparseTwin{"heddle_" #name, sizeof(DequantiseArguments), &translate_dequantise<Code>, \
             &run_dequantise<Code>},
#define HEDDLE_SELECT_TWIN(name, Bits, Index, kPass)                                      \
  SparseTwin{"heddle_" #name, sizeof(SelectArguments), &translate_selection<Bits, Index>, \
             &run_selection<Bits, Index, kPass>},
#define HEDDLE_SCATTER_TWIN(name, Element, Index, Operation)                                \
  SparseTwin{"heddle_" #name, sizeof(ScatterArguments), &translate_scatter<Element, Index>, \
             &run_scatter<Element, Index, Operation>},
#define HEDDLE_MERGE_TWIN(name, Element, Index) \
  SparseTwin{"heddle_" #name, sizeof(MergeArguments), &translate_merge<Element>, &run_merge<Element, Index>},
#define HEDDLE_SPREAD_TWIN(name, Stored, Index)                                          \
  SparseTwin{"heddle_" #name, sizeof(SpreadArguments), &translate_spread<Stored, Index>, \
             &run_spread<Stored, Index>},
#ifdef __clang_analyzer__
// What it looks for is in one kernel of a kind as in all, and all take it more than a minute.
#define HEDDLE_TWINS HEDDLE_SELECT_TWIN(select_32_i32, std::uint32_t, std::uint32_t, Pass::plain)
#else
#define HEDDLE_TWINS                                      \
  HEDDLE_SELECT_KERNELS(HEDDLE_SELECT_TWIN)               \
  HEDDLE_SCATTER_KERNELS(HEDDLE_SCATTER_TWIN)             \
  HEDDLE_MERGE_KERNELS(HEDDLE_MERGE_TWIN)                 \
  HEDDLE_SPREAD_KERNELS(HEDDLE_SPREAD_TWIN)               \
  HEDDLE_CHECK_KERNELS(HEDDLE_CHECK_TWIN)                 \
  HEDDLE_FORGET_KERNELS(HEDDLE_FORGET_TWIN)               \
  HEDDLE_PACK_BITMAP_KERNELS(HEDDLE_PACK_BITMAP_TWIN)     \
  HEDDLE_UNPACK_BITMAP_KERNELS(HEDDLE_UNPACK_BITMAP_TWIN) \
  HEDDLE_PACK_DELTA_KERNELS(HEDDLE_PACK_DELTA_TWIN)       \
  HEDDLE_UNPACK_DELTA_KERNELS(HEDDLE_UNPACK_DELTA_TWIN)   \
  HEDDLE_QUANTISE_KERNELS(HEDDLE_QUANTISE_TWIN)           \
  HEDDLE_DEQUANTISE_KERNELS(HEDDLE_DEQUANTISE_TWIN)
#endif
constexpr SparseTwin kSparseTwins[] = {
    HEDDLE_TWINS SparseTwin{"heddle_forget_rest", sizeof(ForgetArguments), &translate_forget<std::uint32_t>,
                            &run_forget_rest},
    SparseTwin{"heddle_count_digits", sizeof(DigitArguments), &translate_digits, &run_digits}};

}  // namespace

const SparseTwin* find_sparse_twin(std::string_view name) {
  for (const SparseTwin& twin : kSparseTwins) {
    if (name == twin.name) return &twin;
  }
  return nullptr;
}

}  // namespace heddle::test
