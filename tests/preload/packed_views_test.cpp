// Any part of a message of a derived datatype, by loops or lists of blocks, or by the host's packing of
// elements, compared with what the host packs and unpacks of the whole.
#include "interpose/backend/packed_views.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "host.hpp"
#include "interpose/backend/blocks.hpp"
#include "interpose/backend/host_self.hpp"

namespace heddle::backend {
namespace {

using test::host;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kRoom = 20'000;    // memory
constexpr std::size_t kOrigin = 10'000;  // where the buffer begins in it

enum class By { loops, blocks, elements };
constexpr const char* kNames[] = {", by loops", ", by blocks", ", by elements"};

struct Case {
  const char* name;
  MPI_Datatype type;
  int count;
  bool in_loops;
  bool lists_blocks = false;
};

MPI_Datatype committed(MPI_Datatype type) {
  MPI_Type_commit(&type);
  return type;
}
MPI_Datatype vector(int count, int length, int stride, MPI_Datatype of) {
  MPI_Datatype type;
  MPI_Type_vector(count, length, stride, of, &type);
  return committed(type);
}
MPI_Datatype hvector(int count, int length, MPI_Aint stride, MPI_Datatype of) {
  MPI_Datatype type;
  MPI_Type_create_hvector(count, length, stride, of, &type);
  return committed(type);
}
MPI_Datatype resized(MPI_Datatype of, MPI_Aint lower, MPI_Aint extent) {
  MPI_Datatype type;
  MPI_Type_create_resized(of, lower, extent, &type);
  return committed(type);
}
MPI_Datatype contiguous(int count, MPI_Datatype of) {
  MPI_Datatype type;
  MPI_Type_contiguous(count, of, &type);
  return committed(type);
}
MPI_Datatype dup(MPI_Datatype of) {
  MPI_Datatype type;
  MPI_Type_dup(of, &type);
  return type;
}
MPI_Datatype subarray(const std::vector<int>& sizes, const std::vector<int>& parts,
                      const std::vector<int>& starts, int order, MPI_Datatype of) {
  MPI_Datatype type;
  MPI_Type_create_subarray(static_cast<int>(sizes.size()), sizes.data(), parts.data(), starts.data(), order,
                           of, &type);
  return committed(type);
}
MPI_Datatype number_and_letter() {
  const int lengths[2] = {1, 3};
  const MPI_Aint places[2] = {8, 0};
  const MPI_Datatype types[2] = {MPI_DOUBLE, MPI_CHAR};
  MPI_Datatype type;
  MPI_Type_create_struct(2, lengths, places, types, &type);
  return committed(type);
}
MPI_Datatype indexed() {
  const int lengths[3] = {2, 1, 3};
  const int places[3] = {7, 0, 2};
  MPI_Datatype type;
  MPI_Type_indexed(3, lengths, places, MPI_SHORT, &type);
  return committed(type);
}

MPI_Datatype hindexed(MPI_Datatype of) {
  const int lengths[4] = {2, 0, 1, 3};
  const MPI_Aint places[4] = {40, 0, -21, 3};
  MPI_Datatype type;
  MPI_Type_create_hindexed(4, lengths, places, of, &type);
  return committed(type);
}
MPI_Datatype indexed_block(MPI_Datatype of) {
  const int places[3] = {7, -4, 2};
  MPI_Datatype type;
  MPI_Type_create_indexed_block(3, 2, places, of, &type);
  return committed(type);
}
MPI_Datatype hindexed_block(MPI_Datatype of) {
  const MPI_Aint places[3] = {70, -41, 2};
  MPI_Datatype type;
  MPI_Type_create_hindexed_block(3, 2, places, of, &type);
  return committed(type);
}

std::vector<Case> cases() {
  const MPI_Datatype pair = MPI_DOUBLE_INT;
  return {
      {"vector of numbers", vector(300, 1, 2, MPI_DOUBLE), 1, true},
      {"of floats", vector(300, 1, 3, MPI_FLOAT), 1, true},
      {"of 16 bytes", vector(100, 1, 2, MPI_C_DOUBLE_COMPLEX), 1, true},
      {"of letters", vector(500, 1, 2, MPI_CHAR), 1, true},
      {"blocks of 12 bytes", vector(200, 3, 5, MPI_INT), 1, true},
      {"backwards", vector(300, 1, -2, MPI_DOUBLE), 1, true},
      {"backwards, blocks", hvector(100, 3, -37, MPI_SHORT), 1, true},
      {"several vectors", vector(5, 2, 7, MPI_INT), 30, true},
      {"one after the other without a gap", vector(9, 2, 2, MPI_INT), 20, true},
      {"with holes", resized(vector(5, 2, 4, MPI_INT), 0, 101), 30, true},
      {"from before the buffer", resized(vector(3, 1, 2, MPI_INT), -16, 40), 40, true},
      {"each in front of the one before", resized(vector(3, 1, 2, MPI_INT), 0, -24), 40, true},
      {"interleaved", resized(vector(8, 1, 4, MPI_INT), 0, 4), 4, true},
      {"vectors of vectors", vector(6, 2, 3, vector(4, 3, 5, MPI_SHORT)), 7, true},
      {"contiguous vectors", contiguous(3, vector(4, 1, 2, MPI_DOUBLE)), 5, true},
      {"copy of a copy", dup(dup(vector(40, 1, 2, MPI_LONG))), 2, true},
      {"part of a matrix", subarray({7, 30}, {5, 11}, {2, 3}, MPI_ORDER_C, MPI_DOUBLE), 3, true},
      {"Fortran's", subarray({7, 30}, {5, 11}, {2, 3}, MPI_ORDER_FORTRAN, MPI_DOUBLE), 3, true},
      {"part of a cube", subarray({5, 6, 7}, {2, 4, 3}, {3, 0, 1}, MPI_ORDER_C, vector(2, 1, 2, MPI_SHORT)),
       3, true},
      {"whole rows", subarray({9, 30}, {4, 30}, {2, 0}, MPI_ORDER_C, MPI_INT), 2, true},
      {"five dimensions", subarray({2, 3, 2, 3, 2}, {1, 2, 1, 2, 1}, {1, 1, 1, 1, 1}, MPI_ORDER_C, MPI_INT),
       2, false},
      {"deep", dup(dup(dup(dup(dup(vector(40, 1, 2, MPI_LONG)))))), 2, false},
      {"many loops",
       vector(2, 2, 3, vector(2, 2, 3, resized(vector(2, 2, 3, vector(2, 2, 3, MPI_CHAR)), 0, 50))), 2,
       false},
      {"of pairs", vector(50, 1, 2, pair), 2, false},
      {"struct", number_and_letter(), 90, false},
      {"struct with holes", resized(number_and_letter(), 0, 40), 90, false},
      {"indexed", indexed(), 100, false, true},
      {"indexed, apart", resized(indexed(), 0, -60), 60, false},
      {"hindexed", hindexed(contiguous(3, MPI_CHAR)), 20, false, true},
      {"hindexed of vectors", hindexed(vector(2, 1, 2, MPI_SHORT)), 20, false},
      {"hindexed of what lies apart", hindexed(resized(MPI_SHORT, 0, 6)), 20, false},
      {"blocks of a length", indexed_block(MPI_DOUBLE), 9, false, true},
      {"blocks of a length, by addresses", hindexed_block(MPI_INT), 9, false, true},
  };
}

Bytes memory(int seed) {
  Bytes all(kRoom);
  for (std::size_t i = 0; i < kRoom; ++i)
    all[i] = static_cast<std::byte>((i * 2654435761u >> 9) + static_cast<unsigned>(seed) * 77);
  return all;
}

class PackedViews : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(self_.open()); }
  void TearDown() override { self_.close(); }

  std::unique_ptr<PackedView> view(const Case& c, std::byte* buffer, By by) {
    if (by == By::loops)
      return std::make_unique<StridedView>(
          buffer, packing_.loops_of(buffer, static_cast<std::size_t>(c.count), c.type).value());
    int bytes = 0;
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    MPI_Type_size(c.type, &bytes);
    MPI_Type_get_extent(c.type, &lower, &extent);
    if (by == By::blocks)
      return std::make_unique<BlocksView>(buffer, packing_.blocks_of(c.type).value(), extent);
    return std::make_unique<ElementsView>(packing_, buffer, c.type, static_cast<std::size_t>(bytes), extent,
                                          scratch_);
  }
  void compare(const Case& c, By by, std::size_t part);

  HostSelf self_{host()};
  Packing packing_{host(), self_};
  Scratch scratch_;
};

void PackedViews::compare(const Case& c, By by, std::size_t part) {
  SCOPED_TRACE(testing::Message() << c.name << (kNames[static_cast<int>(by)]) << " in parts of " << part);
  int size = 0;
  MPI_Pack_size(c.count, c.type, MPI_COMM_SELF, &size);
  Bytes expected(static_cast<std::size_t>(size));
  Bytes from = memory(1);
  int packed = 0;
  MPI_Pack(from.data() + kOrigin, c.count, c.type, expected.data(), size, &packed, MPI_COMM_SELF);
  expected.resize(static_cast<std::size_t>(packed));
  const auto in_parts = [&](auto&& move) {
    for (std::size_t at = 0; at < expected.size(); at += part)
      ASSERT_TRUE(move(at, std::min(part, expected.size() - at)));
  };

  Bytes got(expected.size());
  const auto source = view(c, from.data() + kOrigin, by);
  in_parts([&](std::size_t at, std::size_t n) { return source->read(at, n, got.data() + at); });
  EXPECT_EQ(got, expected);

  Bytes wanted = memory(2);
  int position = 0;
  MPI_Unpack(expected.data(), packed, &position, wanted.data() + kOrigin, c.count, c.type, MPI_COMM_SELF);
  Bytes to = memory(2);
  const auto target = view(c, to.data() + kOrigin, by);
  in_parts([&](std::size_t at, std::size_t n) { return target->write(at, n, expected.data() + at); });
  EXPECT_EQ(to, wanted);
}

TEST_F(PackedViews, AreWhatTheHostPacks) {
  for (Case& c : cases()) {
    const auto loops = packing_.loops_of(&c, static_cast<std::size_t>(c.count), c.type);
    EXPECT_EQ(loops.has_value(), c.in_loops) << c.name;
    const auto blocks = packing_.blocks_of(c.type);
    EXPECT_EQ(blocks.has_value(), c.lists_blocks) << c.name;
    for (const std::size_t part : {1, 7, 8, 100, 1001, 1'000'000}) {
      if (loops.has_value()) compare(c, By::loops, part);
      if (blocks.has_value()) compare(c, By::blocks, part);
      compare(c, By::elements, part);
    }
    MPI_Type_free(&c.type);
  }
}

TEST_F(PackedViews, SayWhatFailed) {
  std::byte memory[64] = {};
  Scratch scratch;
  ElementsView without_room(packing_, memory, MPI_INT, SIZE_MAX / 2, 4, scratch);
  EXPECT_FALSE(without_room.read(0, 10, memory));
  EXPECT_EQ(without_room.status().code(), Code::out_of_memory);
  // More bytes than an element has.
  ElementsView wrong(packing_, memory, MPI_INT, 8, 4, scratch);
  EXPECT_FALSE(wrong.read(0, 8, memory + 32));
  EXPECT_EQ(wrong.status().message(), "MPI_Pack failed in MPI_Bcast of a derived datatype");
}

}  // namespace
}  // namespace heddle::backend
