// SparseKernels: what is done with entries.
#include <fmt/format.h>

#include "base/round_up.hpp"
#include "gpu/address.hpp"
#include "gpu/sparse_launch.hpp"

namespace heddle::gpu {
namespace {

using kernels::EntryList;
using kernels::MergeArguments;
using kernels::MergeOperation;

// Blocks of a multiprocessor.
constexpr unsigned kMergeBlocks = 3;
constexpr unsigned kScatterBlocks = 16;
constexpr unsigned kSpreadBlocks = 8;

// Of a kernel that folds entries, but for the indices' width.
Result<std::string> name_of_fold(const char* what, DType type) {
  const char* suffix = nullptr;
  if (type == DType::f16) suffix = "f16";
  if (type == DType::bf16) suffix = "bf16";
  if (type == DType::f32) suffix = "f32";
  if (type == DType::f64) suffix = "f64";
  if (type == DType::i32) suffix = "i32";
  if (type == DType::i64) suffix = "i64";
  if (suffix == nullptr)
    return Status(Code::unsupported,
                  fmt::format("there is no kernel that folds entries of {}", dtype_name(type)));
  return std::string(what) + suffix;
}

Result<MergeOperation> operation_of(Op op) {
  if (op == Op::sum) return MergeOperation::sum;
  if (op == Op::min) return MergeOperation::min;
  if (op == Op::max) return MergeOperation::max;
  return Status(
      Code::unsupported,
      fmt::format("there is no kernel that merges entries by {}; there are sum, min and max", op_name(op)));
}

EntryList list_of(const CountedEntries& counted) {
  const Entries& entries = counted.entries;
  return {static_cast<const unsigned char*>(entries.indices),
          static_cast<const unsigned char*>(entries.values), entries.count, counted.counted,
          entries.wide ? 1U : 0U};
}

Status check_merge(const CountedEntries& first, const CountedEntries& second, std::size_t dimension,
                   std::span<const Room> to, std::size_t value_bytes, const MergeWords& words,
                   const void* workspace) {
  if (to.empty() || to.size() > SparseKernels::kMostMerged)
    return Status(Code::invalid_argument,
                  fmt::format("a merge of entries on a GPU to {} places; it takes 1 to {}", to.size(),
                              SparseKernels::kMostMerged));
  for (const Room& room : to) {
    if (!room.wide && std::uint64_t{dimension} > std::uint64_t{1} << 32)
      return Status(
          Code::invalid_argument,
          fmt::format("a dimension of {} wants indices of 64 bits; those of 32 serve 2^32", dimension));
    HEDDLE_TRY(check_alignment({{"the result's indices", room.indices, index_bytes(room.wide)},
                                {"the result's values", room.values, value_bytes}}));
  }
  for (const CountedEntries* one : {&first, &second})
    HEDDLE_TRY(check_alignment({{"indices", one->entries.indices, index_bytes(one->entries.wide)},
                                {"values", one->entries.values, value_bytes}}));
  return check_alignment({{"the result's count", words.count, sizeof *words.count},
                          {"the mark of broken entries", words.broken, sizeof *words.broken},
                          {"the workspace", workspace, sizeof(kernels::Vector)}});
}

}  // namespace

Status SparseKernels::scatter(CUstream stream, DType type, const CountedEntries& entries, void* dense,
                              std::size_t dimension) {
  const std::size_t bytes = dtype_size(type);
  if (bytes != 2 && bytes != 4 && bytes != 8)
    return Status(Code::unsupported, fmt::format("there is no kernel that scatters {}", dtype_name(type)));
  return scatter_by(stream, fmt::format("scatter_{}", 8 * bytes), bytes, entries, dense, dimension);
}

Status SparseKernels::scatter_add(CUstream stream, DType type, const Entries& entries, void* dense,
                                  std::size_t dimension) {
  const Result<std::string> name = name_of_fold("scatter_add_", type);
  if (!name.ok()) return name.status();
  return scatter_by(stream, name.value(), dtype_size(type), {entries}, dense, dimension);
}

Status SparseKernels::scatter_by(CUstream stream, const std::string& name, std::size_t value_bytes,
                                 const CountedEntries& counted, void* dense, std::size_t dimension) {
  const Entries& entries = counted.entries;
  HEDDLE_TRY(check_alignment({{"indices", entries.indices, index_bytes(entries.wide)},
                              {"values", entries.values, value_bytes},
                              {"the dense form", dense, value_bytes}}));
  if (entries.count == 0) return {};
  kernels::ScatterArguments arguments{static_cast<const unsigned char*>(entries.indices),
                                      static_cast<const unsigned char*>(entries.values),
                                      entries.count,
                                      counted.counted,
                                      static_cast<unsigned char*>(dense),
                                      dimension};
  return launch(stream, name + index_name(entries.wide), blocks_for(entries.count), kScatterBlocks,
                &arguments);
}

Status SparseKernels::spread(CUstream stream, DType type, const CountedEntries& counted, bool from_zero,
                             const std::uint64_t* broken, std::span<void* const> dense,
                             std::size_t dimension) {
  const Entries& entries = counted.entries;
  const std::size_t bytes = dtype_size(type);
  if (bytes != 2 && bytes != 4 && bytes != 8)
    return Status(Code::unsupported, fmt::format("there is no kernel that spreads {}", dtype_name(type)));
  if (dense.empty() || dense.size() > kMostSpread)
    return Status(
        Code::invalid_argument,
        fmt::format("entries on a GPU to {} vectors at once; it takes 1 to {}", dense.size(), kMostSpread));
  HEDDLE_TRY(check_alignment(
      {{"indices", entries.indices, index_bytes(entries.wide)}, {"values", entries.values, bytes}}));
  kernels::SpreadArguments arguments{};
  arguments.indices = static_cast<const unsigned char*>(entries.indices);
  arguments.values = static_cast<const unsigned char*>(entries.values);
  arguments.count = entries.count;
  arguments.counted = counted.counted;
  arguments.broken = broken;
  const bool has_sign = type != DType::i32 && type != DType::i64;  // of a zero
  arguments.cleared = from_zero && has_sign ? std::uint64_t{1} << (8 * bytes - 1) : 0;
  for (void* const one : dense) {
    HEDDLE_TRY(check_alignment({{"the dense form", one, bytes}}));
    arguments.outputs[arguments.n_outputs++] = static_cast<unsigned char*>(one);
  }
  arguments.dimension = dimension;
  return launch(stream, fmt::format("spread_{}{}", 8 * bytes, index_name(entries.wide)),
                div_up(dimension * bytes, kernels::kSpreadTile), kSpreadBlocks, &arguments);
}

// By indices of 32 bits where all fit into them, however wide they lie.
Status SparseKernels::merge(CUstream stream, DType type, Op op, const CountedEntries& first,
                            const CountedEntries& second, std::size_t dimension, std::span<const Room> to,
                            const MergeWords& words, void* workspace) {
  const Result<std::string> name = name_of_fold("merge_", type);
  if (!name.ok()) return name.status();
  const Result<MergeOperation> operation = operation_of(op);
  if (!operation.ok()) return operation.status();
  HEDDLE_TRY(check_merge(first, second, dimension, to, dtype_size(type), words, workspace));
  MergeArguments arguments{};
  arguments.first = list_of(first);
  arguments.second = list_of(second);
  arguments.operation = operation.value();
  arguments.dimension = dimension;
  for (const Room& room : to)
    arguments.rooms[arguments.n_rooms++] = {static_cast<unsigned char*>(room.indices),
                                            static_cast<unsigned char*>(room.values), room.capacity,
                                            room.wide ? 1U : 0U};
  arguments.needed = words.count;
  arguments.broken = words.broken;
  arguments.told = words.told_count;
  arguments.told_broken = words.told_broken;
  arguments.workspace = static_cast<kernels::Workspace*>(workspace);
  const bool is_long = std::uint64_t{dimension} > std::uint64_t{1} << 32;
  const std::uint64_t all =
      (arguments.first.count + arguments.second.count + kernels::kMergeTile - 1) / kernels::kMergeTile;
  return launch_tiles(stream, name.value() + index_name(is_long), arguments, all, kMergeBlocks);
}

Status SparseKernels::check_contract(CUstream stream, const Entries& entries, std::size_t dimension,
                                     std::uint64_t* broken) {
  HEDDLE_TRY(check_alignment({{"indices", entries.indices, index_bytes(entries.wide)},
                              {"the mark of broken entries", broken, sizeof *broken}}));
  if (entries.count == 0) return {};
  kernels::CheckArguments arguments{static_cast<const unsigned char*>(entries.indices), entries.count,
                                    dimension, broken};
  return launch(stream, std::string("check_entries") + index_name(entries.wide), blocks_for(entries.count),
                kScatterBlocks, &arguments);
}

Status SparseKernels::forget(CUstream stream, const Selected& sent, float* vector, std::size_t n,
                             std::uint64_t* some_finite) {
  HEDDLE_TRY(check_alignment({{"indices", sent.indices, index_bytes(sent.wide)},
                              {"values", sent.values, sizeof(float)},
                              {"the vector", vector, sizeof *vector},
                              {"the entries' count", sent.count, sizeof *sent.count},
                              {"the mark of finite entries", some_finite, sizeof *some_finite}}));
  const CUresult error = driver_.MemsetD8Async(number(some_finite), 0, sizeof *some_finite, stream);
  if (error != CUDA_SUCCESS) return cuda_error(driver_, error, "clearing a mark on a GPU");
  kernels::ForgetArguments arguments{static_cast<const unsigned char*>(sent.indices),
                                     static_cast<const unsigned char*>(sent.values),
                                     sent.count,
                                     sent.capacity,
                                     vector,
                                     n,
                                     some_finite};
  HEDDLE_TRY(launch(stream, std::string("forget_entries") + index_name(sent.wide), blocks_for(sent.capacity),
                    kScatterBlocks, &arguments));
  return launch(stream, "forget_rest", blocks_for(n), kScatterBlocks, &arguments);
}

}  // namespace heddle::gpu
