// Codes of indices beside their bytes (index_check.cpp): blocks that run at once, and leave the workspace as
// it was.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "blocks_at_once.hpp"
#include "gpu/kernels/sparse_list.hpp"
#include "host_sparse.hpp"

namespace heddle::gpu {
namespace {

using kernels::Workspace;
using test::host_pack;
using test::IndexCode;
using test::run_at_once;

constexpr unsigned kBlocks = 7;
constexpr int kRounds = 10;

// Of which deltas have one, two and five bytes, and more tiles than there are blocks.
std::vector<std::uint64_t> some_indices() {
  std::vector<std::uint64_t> indices;
  std::uint64_t next = 5;
  for (std::uint32_t i = 0; i < 60'000; ++i) {
    indices.push_back(next);
    const std::uint32_t drawn = i * 2654435761U >> 20;
    next += 1 + drawn % 130 + (drawn == 77 ? std::uint64_t{1} << 33 : 0);
  }
  return indices;
}

class IndexCodes : public ::testing::Test {
 protected:
  // But for what selections leave there.
  void expect_clean(int round) {
    work_->above = 0;
    work_->equal = 0;
    work_->search = {};
    ASSERT_EQ(std::memcmp(work_.get(), clean_.get(), sizeof *work_), 0) << round;
  }
  kernels::UnpackArguments unpacking(const std::vector<std::uint8_t>& codes, std::uint64_t span) {
    kernels::UnpackArguments a{};
    a.codes = codes.data();
    a.bytes = codes.size();
    a.span = span;
    a.is_first = 1;
    a.count = got_.size();
    a.indices = reinterpret_cast<unsigned char*>(got_.data());
    a.needed = &work_->search.listed;
    a.bad = &bad_;
    a.workspace = work_.get();
    return a;
  }

  std::vector<std::uint64_t> got_;
  std::uint64_t bad_ = 0;
  const std::unique_ptr<Workspace> work_ = std::make_unique<Workspace>();
  const std::unique_ptr<Workspace> clean_ = std::make_unique<Workspace>();
};

TEST_F(IndexCodes, BecomeDeltasAtOnce) {
  const std::vector<std::uint64_t> indices = some_indices();
  const std::vector<std::uint8_t> want = host_pack(IndexCode::delta, indices, {0, indices.back() + 1}, true);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::uint8_t> got(want.size());
    std::uint64_t bytes = 0;
    kernels::PackDeltaArguments a{};
    a.indices = reinterpret_cast<const unsigned char*>(indices.data());
    a.count = indices.size();
    a.is_first = 1;
    a.most_tiles = kernels::kMostTiles;
    a.codes = got.data();
    a.capacity = got.size();
    a.needed = &bytes;
    a.workspace = work_.get();
    run_at_once(kBlocks, [&](const kernels::Block& block) {
      const auto shared = std::make_unique<kernels::PackShared<std::uint64_t>>();
      kernels::pack_delta(block, a, *shared);
    });
    ASSERT_EQ(bytes, want.size()) << round;
    ASSERT_EQ(got, want) << round;
    expect_clean(round);
  }
}

TEST_F(IndexCodes, ComeFromDeltasAtOnce) {
  const std::vector<std::uint64_t> indices = some_indices();
  const std::uint64_t span = indices.back() + 1;
  const std::vector<std::uint8_t> codes = host_pack(IndexCode::delta, indices, {0, span}, true);
  for (int round = 0; round < kRounds; ++round) {
    got_.assign(indices.size(), 0);
    kernels::UnpackArguments a = unpacking(codes, span);
    a.most_tiles = kernels::kMostDeltaTiles;
    run_at_once(kBlocks, [&](const kernels::Block& block) {
      const auto shared = std::make_unique<kernels::UnpackShared<std::uint64_t>>();
      kernels::unpack_delta(block, a, *shared);
    });
    ASSERT_EQ(bad_, 0U) << round;
    ASSERT_EQ(got_, indices) << round;
    expect_clean(round);
  }
}

TEST_F(IndexCodes, ComeFromBitsAtOnce) {
  std::vector<std::uint64_t> indices;
  for (std::uint32_t i = 0; i < 400'000; ++i)
    if (i * 2654435761U >> 28 < 3) indices.push_back(i);
  const std::vector<std::uint8_t> packed = host_pack(IndexCode::bitmap, indices, {0, 400'000}, true);
  for (int round = 0; round < kRounds; ++round) {
    got_.assign(indices.size(), 0);
    kernels::UnpackArguments a = unpacking(packed, 400'000);
    a.most_tiles = kernels::kMostTiles;
    run_at_once(kBlocks, [&](const kernels::Block& block) {
      const auto shared = std::make_unique<kernels::BitmapShared>();
      kernels::unpack_bitmap<std::uint64_t>(block, a, *shared);
    });
    ASSERT_EQ(bad_, 0U) << round;
    ASSERT_EQ(got_, indices) << round;
    expect_clean(round);
  }
}

}  // namespace
}  // namespace heddle::gpu
