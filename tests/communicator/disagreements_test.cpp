// Ranks that do not pass the same: who can notice does, and says what differs.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "comm/hello.hpp"
#include "communicator/party.hpp"

namespace heddle::test {
namespace {

using std::chrono::milliseconds;

Config hurried() {
  Config config = quiet();
  config.timeout = milliseconds(400);
  return config;
}

TEST(Disagreements, DifferentLengthsAreNoticed) {
  Party party({1, 1});
  Config config = hurried();
  config.timeout = milliseconds(5000);
  party.run(config, [](Rank& me, Communicator& comm) {
    std::vector<std::byte> data(100);
    const Status status = me.rank == 0 ? comm.send(data.data(), 60, 1) : comm.recv(data.data(), 50, 0);
    if (me.rank == 0) return;
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_NE(status.message().find("60 bytes where 50 were expected"), std::string::npos)
        << status.message();
  });
}

// On one node. A rank that has given its part and has all others' before one of them differs has its result already.
TEST(Disagreements, DifferentTypesAndOperationsAreNoticed) {
  for (const bool type_differs : {true, false}) {
    for (const std::size_t count : {std::size_t{3}, std::size_t{300'000}}) {
      Party party({1, 1});
      party.run(hurried(), [&](Rank& me, Communicator& comm) {
        std::vector<float> data(count, 1.0F);
        const DType type = type_differs && me.rank == 1 ? DType::i32 : DType::f32;
        const Op op = !type_differs && me.rank == 1 ? Op::max : Op::sum;
        const Status status = comm.allreduce(data.data(), data.data(), count, type, op);
        EXPECT_EQ(status.code(), Code::invalid_argument) << status.message();
        EXPECT_NE(status.message().find("sum of float32"), std::string::npos) << status.message();
        EXPECT_NE(status.message().find(type_differs ? "sum of int32 or uint32" : "max of float32"),
                  std::string::npos)
            << status.message();
      });
    }
  }
}

// Programs mix them, and no result depends on it as long as no value is negative.
TEST(Disagreements, SignedAndUnsignedTypesGoTogether) {
  Party party({1, 1});
  party.run(hurried(), [&](Rank& me, Communicator& comm) {
    std::uint32_t value = 3;
    const Status status = comm.allreduce(&value, &value, 1, me.rank == 0 ? DType::u32 : DType::i32, Op::sum);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(value, 6U);
  });
}

TEST(Disagreements, ANumberThatTwoRanksHave) {
  Bootstrap bootstrap;
  bootstrap.rank = 0;
  bootstrap.size = 2;
  const Hello hello = make_hello(bootstrap, quiet());
  const Status status = check_hellos({hello, hello});
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.message().find("in the place of rank 1 of 2 is one that was started as rank 0 of 2"),
            std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace heddle::test
