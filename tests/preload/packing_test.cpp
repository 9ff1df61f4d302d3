// What a backend packs, in one process with a host MPI of its ABI.
#include "interpose/backend/packing.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "host.hpp"
#include "interpose/backend/comm_state.hpp"
#include "interpose/backend/host_self.hpp"

namespace heddle::backend {
namespace {

using test::host;

TEST(Scratch, KeepsLittleAndGivesBackMuch) {
  Scratch scratch;
  void* small = scratch.reserve(1000);
  ASSERT_NE(small, nullptr);
  scratch.relax();
  EXPECT_EQ(scratch.reserve(500), small);
  std::memset(scratch.reserve(8u << 20), 1, 8u << 20);
  scratch.relax();
  EXPECT_NE(scratch.reserve(10), nullptr);
  EXPECT_EQ(scratch.reserve(SIZE_MAX / 4), nullptr);
}

class PackingTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(self_.open()); }
  void TearDown() override { self_.close(); }
  HostSelf self_{host()};
  Packing packing_{host(), self_};
};

TEST_F(PackingTest, FormatIsRawBytes) {
  EXPECT_TRUE(packing_.check_format());
}

TEST_F(PackingTest, TellsContiguousFromMerelyDense) {
  Packing::Layout layout;
  int memory[8] = {};
  ASSERT_TRUE(packing_.inspect(memory, MPI_DOUBLE, &layout));
  EXPECT_TRUE(layout.contiguous && layout.element_bytes == 8);
  ASSERT_TRUE(packing_.inspect(memory, MPI_DOUBLE_INT, &layout));
  EXPECT_TRUE(!layout.contiguous && layout.element_bytes == 12);

  MPI_Datatype contiguous;
  MPI_Type_contiguous(4, MPI_INT, &contiguous);
  EXPECT_FALSE(packing_.inspect(memory, contiguous, &layout)) << "not committed";
  MPI_Type_commit(&contiguous);
  ASSERT_TRUE(packing_.inspect(memory, contiguous, &layout));
  EXPECT_TRUE(layout.contiguous && layout.element_bytes == 16);
  MPI_Datatype twice;
  MPI_Type_contiguous(2, contiguous, &twice);
  MPI_Type_commit(&twice);
  ASSERT_TRUE(packing_.inspect(memory, twice, &layout));
  EXPECT_TRUE(layout.contiguous && layout.element_bytes == 32);
  MPI_Datatype pairs;
  MPI_Type_contiguous(2, MPI_DOUBLE_INT, &pairs);
  MPI_Type_commit(&pairs);
  ASSERT_TRUE(packing_.inspect(memory, pairs, &layout));
  EXPECT_FALSE(layout.contiguous);

  // Dense, but in another order than memory.
  const int lengths[2] = {1, 1};
  const MPI_Aint places[2] = {4, 0};
  MPI_Datatype swapped;
  MPI_Type_create_hindexed(2, lengths, places, MPI_INT, &swapped);
  MPI_Type_commit(&swapped);
  ASSERT_TRUE(packing_.inspect(memory, swapped, &layout));
  EXPECT_TRUE(!layout.contiguous && layout.element_bytes == 8);
  memory[0] = 11;
  memory[1] = 22;
  int packed[2] = {};
  ASSERT_TRUE(packing_.pack(memory, 1, swapped, packed, sizeof packed));
  EXPECT_EQ(packed[0], 22);
  EXPECT_EQ(packed[1], 11);

  EXPECT_FALSE(packing_.inspect(memory, MPI_DATATYPE_NULL, &layout));
  EXPECT_FALSE(packing_.inspect(memory, (MPI_Datatype)MPI_COMM_WORLD, &layout));
  EXPECT_FALSE(packing_.inspect(nullptr, contiguous, &layout)) << "no buffer is the host's to report";
  for (MPI_Datatype* type : {&contiguous, &twice, &pairs, &swapped})
    MPI_Type_free(type);
}

TEST_F(PackingTest, PacksAbsoluteAddresses) {
  int memory[6] = {1, 2, 3, 4, 5, 6};
  const int lengths[2] = {2, 1};
  MPI_Aint places[2];
  MPI_Get_address(&memory[3], &places[0]);
  MPI_Get_address(&memory[0], &places[1]);
  MPI_Datatype type;
  MPI_Type_create_hindexed(2, lengths, places, MPI_INT, &type);
  MPI_Type_commit(&type);
  Packing::Layout layout;
  ASSERT_TRUE(packing_.inspect(MPI_BOTTOM, type, &layout));
  EXPECT_FALSE(layout.contiguous);
  int packed[3] = {};
  ASSERT_TRUE(packing_.pack(MPI_BOTTOM, 1, type, packed, sizeof packed));
  EXPECT_EQ(packed[0] * 100 + packed[1] * 10 + packed[2], 451);
  const int news[3] = {7, 8, 9};
  ASSERT_TRUE(packing_.unpack(news, sizeof news, MPI_BOTTOM, 1, type));
  EXPECT_EQ(memory[3] * 100 + memory[4] * 10 + memory[0], 789);
  MPI_Type_free(&type);
}

}  // namespace
}  // namespace heddle::backend
