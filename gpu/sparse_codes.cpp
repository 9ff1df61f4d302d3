// SparseKernels: codes of vectors and of indices.
#include <fmt/format.h>

#include "base/round_up.hpp"
#include "gpu/address.hpp"
#include "gpu/sparse_launch.hpp"

namespace heddle::gpu {
namespace {

using kernels::UnpackArguments;

// Blocks of a multiprocessor. Where they take tiles in order: as many as have room for what they put into its
// memory.
constexpr unsigned kQuantiseBlocks = 16;
constexpr unsigned kPackBitmapBlocks = 16;
constexpr unsigned kPackDeltaBlocks = 8;
constexpr unsigned kUnpackBlocks = 6;

// Of a kernel of these codes.
Result<std::string> name_of(const char* what, const Quantiser& how) {
  if (how.bits == 16) return fmt::format("{}_{}", what, how.is_bf16 ? "bf16" : "f16");
  if (how.bits == 8 || how.bits == 4 || how.bits == 2 || how.bits == 1)
    return fmt::format("{}_{}", what, how.bits);
  return Status(
      Code::invalid_argument,
      fmt::format("there is no kernel for codes of {} bits; there are 16, 8, 4, 2 and 1", how.bits));
}

constexpr std::size_t kBitmapAlignment = 8;

Status check_range(const IndexRange& range, bool wide) {
  if (range.span > UINT64_MAX - range.first || (!wide && range.first + range.span > std::uint64_t{1} << 32))
    return Status(Code::invalid_argument, fmt::format("{} indices from {} on do not fit into {} bits",
                                                      range.span, range.first, wide ? 64 : 32));
  return {};
}

// What the readers of both codes have in common.
UnpackArguments unpacking(const void* codes, const IndexRange& range, const Room& to, std::uint64_t* bad,
                          void* workspace) {
  auto* const work = static_cast<kernels::Workspace*>(workspace);
  UnpackArguments arguments{};
  arguments.codes = static_cast<const unsigned char*>(codes);
  arguments.first = range.first;
  arguments.span = range.span;
  arguments.indices = static_cast<unsigned char*>(to.indices);
  arguments.count = to.capacity;
  arguments.needed = &work->search.listed;
  arguments.bad = bad;
  arguments.workspace = work;
  return arguments;
}

Status check_unpacking(const void* codes, std::size_t alignment, const IndexRange& range, const Room& to,
                       const std::uint64_t* bad, const void* workspace) {
  HEDDLE_TRY(check_range(range, to.wide));
  return check_alignment({{"codes of indices", codes, alignment},
                          {"indices", to.indices, index_bytes(to.wide)},
                          {"the mark of bad codes", bad, sizeof *bad},
                          {"the workspace", workspace, sizeof(kernels::Vector)}});
}

}  // namespace

Status SparseKernels::pack_bitmap(CUstream stream, const Entries& entries, const IndexRange& range,
                                  void* codes) {
  HEDDLE_TRY(check_range(range, entries.wide));
  HEDDLE_TRY(check_alignment({{"indices", entries.indices, index_bytes(entries.wide)},
                              {"codes of indices", codes, kBitmapAlignment}}));
  if (range.span == 0) return {};
  const CUresult error = driver_.MemsetD8Async(number(codes), 0, bitmap_bytes(range), stream);
  if (error != CUDA_SUCCESS) return cuda_error(driver_, error, "clearing bits of indices on a GPU");
  if (entries.count == 0) return {};
  kernels::PackBitmapArguments arguments{static_cast<const unsigned char*>(entries.indices), entries.count,
                                         range.first, range.span, static_cast<unsigned char*>(codes)};
  return launch(stream, std::string("pack_bitmap") + index_name(entries.wide), blocks_for(entries.count),
                kPackBitmapBlocks, &arguments);
}

Status SparseKernels::pack_delta(CUstream stream, const Entries& entries, const IndexRange& range,
                                 void* codes, std::size_t capacity, std::uint64_t* bytes, void* workspace) {
  HEDDLE_TRY(check_range(range, entries.wide));
  HEDDLE_TRY(check_alignment({{"indices", entries.indices, index_bytes(entries.wide)},
                              {"the number of bytes", bytes, sizeof *bytes},
                              {"the workspace", workspace, sizeof(kernels::Vector)}}));
  kernels::PackDeltaArguments arguments{};
  arguments.indices = static_cast<const unsigned char*>(entries.indices);
  arguments.count = entries.count;
  arguments.first = range.first;
  arguments.codes = static_cast<unsigned char*>(codes);
  arguments.capacity = capacity;
  arguments.needed = bytes;
  arguments.workspace = static_cast<kernels::Workspace*>(workspace);
  return launch_tiles(stream, std::string("pack_delta") + index_name(entries.wide), arguments,
                      (entries.count + kernels::kPackTile - 1) / kernels::kPackTile, kPackDeltaBlocks);
}

Status SparseKernels::unpack_bitmap(CUstream stream, const void* codes, const IndexRange& range,
                                    const Room& to, std::uint64_t* bad, void* workspace) {
  HEDDLE_TRY(check_unpacking(codes, kBitmapAlignment, range, to, bad, workspace));
  constexpr std::uint64_t kTile = kernels::kBitmapTile;
  return launch_tiles(stream, std::string("unpack_bitmap") + index_name(to.wide),
                      unpacking(codes, range, to, bad, workspace), div_up(bitmap_bytes(range), kTile),
                      kUnpackBlocks);
}

Status SparseKernels::unpack_delta(CUstream stream, const void* codes, std::size_t bytes,
                                   const IndexRange& range, const Room& to, std::uint64_t* bad,
                                   void* workspace) {
  HEDDLE_TRY(check_unpacking(codes, 1, range, to, bad, workspace));
  UnpackArguments arguments = unpacking(codes, range, to, bad, workspace);
  arguments.bytes = bytes;
  const std::uint64_t shift = number(codes) % sizeof(kernels::Vector);
  const std::uint64_t tiles =
      bytes == 0 ? 0 : (shift + bytes + kernels::kUnpackTile - 1) / kernels::kUnpackTile;
  return launch_tiles(stream, std::string("unpack_delta") + index_name(to.wide), arguments, tiles,
                      kUnpackBlocks, kernels::kMostDeltaTiles);
}

Status SparseKernels::quantise(CUstream stream, const Quantiser& how, const float* gradient,
                               const float* residual, float* left_out, std::size_t n, std::uint64_t position,
                               void* codes) {
  const Result<std::string> name = name_of("quantise", how);
  if (!name.ok()) return name.status();
  HEDDLE_TRY(check_alignment({{"values", gradient, sizeof *gradient},
                              {"the residual", residual, sizeof *residual},
                              {"what is left out", left_out, sizeof *left_out}}));
  if (n == 0) return {};
  const std::uint64_t bucket = how.bucket_length(n);
  kernels::QuantiseArguments arguments{gradient, residual, left_out, n,
                                       bucket,   position, how.seed, static_cast<unsigned char*>(codes)};
  return launch(stream, name.value(), div_up(n, bucket), kQuantiseBlocks, &arguments);
}

Status SparseKernels::dequantise(CUstream stream, const Quantiser& how, std::span<const void* const> codes,
                                 std::size_t n, float* values, std::uint64_t* bad) {
  const Result<std::string> name = name_of("dequantise", how);
  if (!name.ok()) return name.status();
  if (codes.empty() || codes.size() > kernels::kMostInputs)
    return Status(Code::invalid_argument,
                  fmt::format("codes of {} vectors cannot be added up at once; of 1 to {} can", codes.size(),
                              kernels::kMostInputs));
  HEDDLE_TRY(
      check_alignment({{"values", values, sizeof *values}, {"the mark of bad codes", bad, sizeof *bad}}));
  if (n == 0) return {};
  kernels::DequantiseArguments arguments{};
  for (const void* one : codes)
    arguments.codes[arguments.n_inputs++] = static_cast<const unsigned char*>(one);
  arguments.values = values;
  arguments.count = n;
  arguments.bucket = how.bucket_length(n);
  arguments.bad = bad;
  const std::uint64_t buckets = div_up(n, arguments.bucket);
  return launch(stream, name.value(), buckets / kernels::buckets_at_once(arguments.bucket) + 1,
                kQuantiseBlocks, &arguments);
}

}  // namespace heddle::gpu
