#include "device/reach_trial.hpp"

#include <cstring>

#include <fmt/format.h>

#include "base/hash.hpp"
#include "base/no_memory.hpp"
#include "base/random_number.hpp"

namespace heddle {
namespace {

// In each rank's scratch, patterns one after the other: its own, those that others write, and those that it
// has read from others. Far less than any scratch has (gpu/link.cpp).
constexpr std::size_t kWritten = 1;
constexpr std::size_t kRead = kWritten + gpu::kMostRanks;

std::string gpu_of(const gpu::Origin& origin) {
  char board[sizeof origin.board + 1] = {};
  std::memcpy(board, origin.board, sizeof origin.board);
  return board[0] != 0 ? fmt::format("GPU {}", board) : fmt::format("GPU {}", origin.device);
}

std::string text_of(std::span<const ReachTrial::Rank> all, std::size_t at, std::size_t other,
                    const char* what) {
  return fmt::format(
      "{} (rank {} of the node) {} {} (rank {}), although CUDA lets them reach each other: buffers on GPUs "
      "go "
      "by way of the host's memory. Turn off PCIe ACS, and the IOMMU, for these GPUs, or set "
      "HEDDLE_DEVICE_BYTES=0, which does not try",
      gpu_of(all[at].scratch.origin), at, what, gpu_of(all[other].scratch.origin), other);
}

}  // namespace

ReachTrial::ReachTrial(gpu::Link& link, int rank)
    : link_(link), rank_(static_cast<std::size_t>(rank)), seed_(random_number()) {}

ReachTrial::Pattern ReachTrial::pattern_of(std::uint64_t seed, std::size_t rank) {
  Pattern pattern{};
  for (std::size_t i = 0; i < kWords; ++i)
    pattern[i] = mix64(seed + kWords * rank + i);
  return pattern;
}

Status ReachTrial::put(const gpu::Export& scratch) {
  const Pattern mine = pattern_of(seed_, rank_);
  HEDDLE_TRY(link_.to_device(reinterpret_cast<void*>(scratch.address), mine.data(), sizeof mine));
  return link_.wait();
}

// Kernels use other ranks' scratch, which is freed once one of them has failed: what is under way by then is
// waited for also where the rest could not be given.
Status ReachTrial::cross(std::span<const Rank> all) {
  const Status given = without_throwing([&, this]() -> Status {
    HEDDLE_TRY(give_kernels(all));
    return give_fetch(kRead, all.size(), &read_);
  });
  const Status waited = link_.wait();
  return given.ok() ? waited : given;
}

// A fold of one input copies its bits.
Status ReachTrial::give_kernels(std::span<const Rank> all) {
  constexpr std::size_t kCount = sizeof(Pattern) / sizeof(float);
  std::byte* const own = link_.scratch(static_cast<int>(rank_));
  const auto copy = [&](const void* from, std::span<void* const> to) {
    return link_.fold(DType::f32, Op::sum, std::span(&from, 1), to, kCount);
  };
  std::vector<void*> others;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (r == rank_) continue;
    std::byte* const theirs = link_.scratch(static_cast<int>(r));
    void* const read = own + (kRead + r) * sizeof(Pattern);
    HEDDLE_TRY(copy(theirs, std::span(&read, 1)));
    others.push_back(theirs + (kWritten + rank_) * sizeof(Pattern));
  }
  return others.empty() ? Status() : copy(own, others);
}

Status ReachTrial::give_fetch(std::size_t first, std::size_t ranks, std::vector<Pattern>* found) {
  found->resize(ranks);
  const std::byte* const own = link_.scratch(static_cast<int>(rank_));
  return link_.to_host(found->data(), own + first * sizeof(Pattern), ranks * sizeof(Pattern));
}

Result<std::string> ReachTrial::look(std::span<const Rank> all) {
  std::vector<Pattern> written;
  HEDDLE_TRY(give_fetch(kWritten, all.size(), &written));
  HEDDLE_TRY(link_.wait());
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (r == rank_) continue;
    const Pattern theirs = pattern_of(all[r].seed, r);
    if (read_[r] != theirs) return text_of(all, rank_, r, "does not read what is in the memory of");
    if (written[r] != theirs)
      return text_of(all, rank_, r, "does not find in its memory what was written by");
  }
  return std::string();
}

}  // namespace heddle
