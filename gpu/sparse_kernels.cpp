#include "gpu/sparse_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/round_up.hpp"
#include "gpu/address.hpp"
#include "gpu/sparse_launch.hpp"

namespace heddle::gpu {
namespace {

using kernels::DigitArguments;
using kernels::kMagnitudeBits;
using kernels::kNanKey;
using kernels::SelectArguments;
using kernels::Source;
using kernels::Workspace;

// Blocks of a multiprocessor. Of selections as many as run at once (sparse_kernels.cu): those that come later
// would wait for a place to find that no tile is left.
constexpr unsigned kSelectBlocks = 4;
// Each clears and adds up all digits: no more of them than keep enough of a vector on its way.
constexpr unsigned kDigitBlocks = 4;
// Two pieces for each thread, which are on their way at once.
constexpr unsigned kSampleBlocks = kernels::kSampledPieces / kernels::kThreads / 2;

constexpr std::size_t kListAlignment = 256;
std::size_t aligned(std::size_t bytes) {
  return round_up(bytes, kListAlignment);
}

// Room for the k, and for those that are about as large as the k-th.
std::size_t list_capacity(std::size_t n, std::size_t k) {
  return std::min(n, std::min(k, n) + n / 16 + 1024);
}

// Of the k-th largest of n values in a sample of them, so far down that k are hardly ever missed, though
// those of a piece may be like each other.
std::uint64_t rank_in_sample(std::size_t n, std::size_t k) {
  const double expected = static_cast<double>(k) / static_cast<double>(n) * kernels::kSampledValues;
  return static_cast<std::uint64_t>(expected + 16 * std::sqrt(expected)) + 64;
}
// Where more are wanted the list would hardly have room for those that the sample's digit is too low for.
bool can_sample(std::size_t n, std::size_t k) {
  return k > 0 && k <= n / 8;
}

Status check(const void* from, std::size_t n, std::size_t value_bytes, const Selected& to,
             const void* workspace) {
  if (!to.wide && std::uint64_t{n} > std::uint64_t{1} << 32)
    return Status(Code::invalid_argument,
                  fmt::format("{} values want indices of 64 bits; those of 32 serve 2^32", n));
  return check_alignment({{"values", from, value_bytes},
                          {"the entries' indices", to.indices, index_bytes(to.wide)},
                          {"the entries' values", to.values, value_bytes},
                          {"the entries' count", to.count, sizeof *to.count},
                          {"the workspace", workspace, sizeof(kernels::Vector)}});
}

// Entries of `n` values of `value_bytes` bytes whose bits under `mask` are not below `threshold`.
SelectArguments selection(const void* values, std::size_t n, std::uint64_t mask, std::uint64_t threshold,
                          const Selected& to, void* workspace) {
  SelectArguments arguments{};
  arguments.source.values = static_cast<const unsigned char*>(values);
  arguments.source.count = n;
  arguments.mask = mask;
  arguments.ceiling = mask;
  arguments.threshold = threshold;
  arguments.indices = static_cast<unsigned char*>(to.indices);
  arguments.values = static_cast<unsigned char*>(to.values);
  arguments.capacity = to.capacity;
  arguments.needed = to.count;
  arguments.workspace = static_cast<Workspace*>(workspace);
  return arguments;
}

std::uint64_t ones(std::size_t bytes) {
  return ~std::uint64_t{0} >> (64 - 8 * bytes);
}

std::uint64_t tiles_over(const Source& source, std::size_t value_bytes,
                         std::uint64_t alignment = sizeof(kernels::Vector)) {
  const std::uint64_t shift = number(source.values) % alignment;
  const std::uint64_t tile = kernels::kTileVectors * sizeof(kernels::Vector);
  return source.count == 0 ? 0 : div_up(shift + source.count * value_bytes, tile);
}

// For as many blocks: some for each of them, and not many more than whole turns of all. What is too short for
// that has the least there are.
std::uint64_t selected_tiles(const Source& source, std::size_t value_bytes, std::uint64_t blocks) {
  const std::uint64_t all = tiles_over(source, value_bytes, kernels::kLineBytes);
  const std::uint64_t turns = std::max<std::uint64_t>(div_up(all, blocks * kernels::kMostBatches), 1);
  return div_up(all, std::max<std::uint64_t>(div_up(all, blocks * turns), 1));
}

}  // namespace

Status check_alignment(std::initializer_list<Aligned> all) {
  for (const Aligned& one : all) {
    if (number(one.address) % one.to != 0)
      return Status(Code::unsupported, fmt::format("{} at {}: kernels on GPUs want them "
                                                   "aligned to {} bytes; the host takes them as they are",
                                                   one.name, one.address, one.to));
  }
  return {};
}

std::size_t SparseKernels::workspace_bytes() {
  return sizeof(Workspace);
}

std::size_t SparseKernels::top_k_workspace_bytes(std::size_t n, std::size_t k, bool wide) {
  const std::size_t listed = list_capacity(n, k);
  return aligned(sizeof(Workspace)) + aligned(listed * index_bytes(wide)) + listed * sizeof(float);
}

Status SparseKernels::prepare(CUstream stream, void* workspace) {
  const CUresult error = driver_.MemsetD8Async(number(workspace), 0, sizeof(Workspace), stream);
  return error == CUDA_SUCCESS ? Status()
                               : cuda_error(driver_, error, "clearing the workspace of selections on a GPU");
}

Status SparseKernels::select_nonzero(CUstream stream, DType type, const void* values, std::size_t n,
                                     const Selected& to, void* workspace) {
  const std::size_t bytes = dtype_size(type);
  if (bytes != 2 && bytes != 4 && bytes != 8)
    return Status(Code::unsupported, fmt::format("there is no kernel that selects {}", dtype_name(type)));
  HEDDLE_TRY(check(values, n, bytes, to, workspace));
  return select(stream, fmt::format("select_{}{}", 8 * bytes, index_name(to.wide)),
                selection(values, n, ones(bytes), 1, to, workspace), bytes);
}

Status SparseKernels::select_magnitudes(CUstream stream, const float* values, std::size_t n, float threshold,
                                        const Selected& to, void* workspace) {
  if (std::isnan(threshold))
    return Status(Code::invalid_argument, "a threshold of selection is a number, not NaN");
  HEDDLE_TRY(check(values, n, sizeof(float), to, workspace));
  const std::uint32_t least = std::bit_cast<std::uint32_t>(threshold) & kMagnitudeBits;
  return select(stream, std::string("select_32") + index_name(to.wide),
                selection(values, n, kMagnitudeBits, least, to, workspace), sizeof(float));
}

// Three launches: the highest digit of the k-th largest key, or of a long vector that of a sample, from which
// on there are k, or somewhat more; all entries from that digit up, to the list; the k entries of the list,
// whose k-th largest key is found first. Where the list has not room for all, or the sample was misleading,
// which the device alone knows, the last one finds and takes them in the whole vector.
Status SparseKernels::top_k(CUstream stream, const float* values, std::size_t n, std::size_t k,
                            const Selected& to, void* workspace, std::size_t bytes) {
  if (const std::size_t least = top_k_workspace_bytes(n, k, to.wide); bytes < least)
    return Status(
        Code::invalid_argument,
        fmt::format("the {} largest of {} values want a workspace of {} bytes, not {}", k, n, least, bytes));
  HEDDLE_TRY(check(values, n, sizeof(float), to, workspace));
  if (k == 0) n = 0;
  auto* const work = static_cast<Workspace*>(workspace);
  const std::size_t listed = list_capacity(n, k);
  unsigned char* const list = static_cast<unsigned char*>(workspace) + aligned(sizeof(Workspace));
  const Selected to_list{list, list + aligned(listed * index_bytes(to.wide)), listed, &work->search.listed,
                         to.wide};
  SelectArguments all = selection(values, n, kMagnitudeBits, 0, to_list, workspace);
  all.ceiling = kNanKey;
  all.from_search = 1;
  const std::uint64_t wanted = std::max<std::size_t>(std::min(k, n), 1);
  all.wanted = wanted;
  SelectArguments rest = all;
  rest.source.list_indices = all.indices;
  rest.source.list_values = all.values;
  rest.source.list_capacity = listed;
  rest.indices = static_cast<unsigned char*>(to.indices);
  rest.values = static_cast<unsigned char*>(to.values);
  rest.capacity = to.capacity;
  rest.needed = to.count;

  const bool samples = n >= sampled_from_ && can_sample(n, k);
  const std::uint64_t found = samples ? rank_in_sample(n, k) : wanted;
  HEDDLE_TRY(count_digits(stream, {all.source, found, samples ? 1U : 0U, work}));
  HEDDLE_TRY(select(stream, std::string(samples ? "select_listed" : "select_32") + index_name(to.wide), all,
                    sizeof(float)));
  return select(stream, std::string("select_found") + index_name(to.wide), rest, sizeof(float));
}

Status SparseKernels::select(CUstream stream, const std::string& name, const SelectArguments& arguments,
                             std::size_t value_bytes) {
  const Result<unsigned> multiprocessors = multiprocessors_.count();
  if (!multiprocessors.ok()) return multiprocessors.status();
  const std::uint64_t tiles =
      selected_tiles(arguments.source, value_bytes, std::uint64_t{kSelectBlocks} * multiprocessors.value());
  SelectArguments copy = arguments;
  copy.all_tiles = static_cast<std::uint32_t>(std::max<std::uint64_t>(tiles, 1));
  return launch_tiles(stream, name, copy, tiles, kSelectBlocks);
}

Status SparseKernels::count_digits(CUstream stream, const DigitArguments& arguments) {
  DigitArguments copy = arguments;
  return launch(stream, "count_digits",
                copy.samples != 0 ? kSampleBlocks : tiles_over(copy.source, sizeof(float)), kDigitBlocks,
                &copy);
}

Status SparseKernels::launch(CUstream stream, const std::string& name, std::uint64_t blocks, unsigned of_each,
                             void* arguments) {
  const Result<CUfunction> function = this->function(name);
  if (!function.ok()) return function.status();
  const Result<unsigned> multiprocessors = multiprocessors_.count();
  if (!multiprocessors.ok()) return multiprocessors.status();
  const std::uint64_t most = std::uint64_t{of_each} * multiprocessors.value();
  void* parameters[] = {arguments};
  const CUresult error = driver_.LaunchKernel(
      function.value(), static_cast<unsigned>(std::clamp<std::uint64_t>(blocks, 1, most)), 1, 1,
      kernels::kThreads, 1, 1, 0, stream, parameters, nullptr);
  if (error == CUDA_SUCCESS) return {};
  return kernel_failure(driver_, error, "starting the kernel heddle_" + name);
}

Result<CUfunction> SparseKernels::function(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto known = functions_.find(name);
  if (known != functions_.end()) return known->second;
  Result<CUfunction> found = library_.find(name.c_str());
  if (found.ok()) functions_.emplace(name, found.value());
  return found;
}

}  // namespace heddle::gpu
