#include "common/options.hpp"

#include <gtest/gtest.h>

namespace heddle::bench {
namespace {

Parsed parse(Kind kind, std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "program");
  return parse_options(kind, static_cast<int>(arguments.size()), arguments.data());
}

TEST(Range, HasTheFormsOfOsu) {
  std::size_t low = 4;
  std::size_t high = 1024;
  ASSERT_TRUE(parse_range("8:64K", low, high));
  EXPECT_EQ(low, 8U);
  EXPECT_EQ(high, 65536U);
  ASSERT_TRUE(parse_range("2m", low, high));
  EXPECT_EQ(low, 8U);
  EXPECT_EQ(high, 2097152U);
  ASSERT_TRUE(parse_range("16:", low, high));
  EXPECT_EQ(low, 16U);
  EXPECT_EQ(high, 2097152U);
  ASSERT_TRUE(parse_range("4", low, high));
  EXPECT_EQ(low, 4U);
  EXPECT_EQ(high, 4U);
}

TEST(Range, RefusesWhatIsNone) {
  for (const char* text :
       {"", ":", "5:3", "4:x", "-1:4", "4:16Q", "4:16KK", "1:2:3", "99999999999999999999"}) {
    std::size_t low = 4;
    std::size_t high = 1024;
    EXPECT_FALSE(parse_range(text, low, high)) << text;
    EXPECT_EQ(low, 4U) << text;
    EXPECT_EQ(high, 1024U) << text;
  }
}

TEST(Options, TakesOsuOptions) {
  const Parsed parsed =
      parse(Kind::allreduce, {"-m", "8:32", "-i", "7", "-x", "0", "-f", "-c", "-T", "MPI_INT", "-d", "host"});
  ASSERT_TRUE(parsed.run) << parsed.text;
  EXPECT_EQ(parsed.options.sizes(), (std::vector<std::size_t>{8, 16, 32}));
  EXPECT_EQ(parsed.options.iterations, 7);
  EXPECT_EQ(parsed.options.warmup, 0);
  EXPECT_TRUE(parsed.options.full);
  EXPECT_TRUE(parsed.options.validate);
  EXPECT_EQ(parsed.options.dtype, Dtype::int32);
  EXPECT_FALSE(parsed.options.compares());
  EXPECT_EQ(parsed.options.place, Place::host);
}

TEST(Options, HasDefaultsForEveryKind) {
  const Options allreduce = parse(Kind::allreduce, {}).options;
  EXPECT_EQ(allreduce.dtype, Dtype::float32);
  EXPECT_EQ(allreduce.sizes().front(), 4U);
  EXPECT_EQ(allreduce.sizes().back(), std::size_t{1} << 20);
  EXPECT_FALSE(allreduce.iterations.has_value());
  const Options reduce = parse(Kind::reduce, {}).options;
  EXPECT_EQ(reduce.dtype, Dtype::float32);
  EXPECT_EQ(reduce.sizes(), allreduce.sizes());
  EXPECT_EQ(reduce.pools(), 2U);
  const Options allgather = parse(Kind::allgather, {}).options;
  EXPECT_EQ(allgather.dtype, Dtype::int8);
  EXPECT_EQ(allgather.sizes().front(), 1U);
  EXPECT_EQ(allgather.sizes().back(), std::size_t{1} << 20);
  EXPECT_EQ(allgather.pools(), 2U);
  EXPECT_EQ(allgather.send_bytes(8, 3), 8U);
  EXPECT_EQ(allgather.receive_bytes(8, 3), 24U);
  EXPECT_EQ(reduce.receive_bytes(8, 3), 8U);
  const Options latency = parse(Kind::latency, {}).options;
  EXPECT_EQ(latency.sizes().front(), 1U);
  EXPECT_EQ(latency.sizes().back(), std::size_t{4} << 20);
}

TEST(Options, ComparisonGoesTo16MiBUnlessTold) {
  EXPECT_EQ(parse(Kind::allreduce, {"--vs", "mpi"}).options.max_bytes, std::size_t{16} << 20);
  EXPECT_EQ(parse(Kind::allreduce, {"--vs", "mpi", "-m", "4:1K"}).options.max_bytes, 1024U);
}

TEST(Options, BuffersOnAGpu) {
  const Options options = parse(Kind::bcast, {"-d", "managed", "--vs", "staged"}).options;
  EXPECT_EQ(options.place, Place::managed);
  EXPECT_EQ(options.versus, Versus::staged);
  EXPECT_EQ(parse(Kind::latency, {"-d", "cuda"}).options.place, Place::cuda);
}

TEST(Options, SizesHoldWholeElements) {
  EXPECT_EQ(parse(Kind::bcast, {"-T", "double", "-m", "1:32"}).options.sizes(),
            (std::vector<std::size_t>{8, 16, 32}));
  EXPECT_EQ(parse(Kind::bcast, {"-m", "0:2"}).options.sizes(), (std::vector<std::size_t>{0, 1, 2}));
}

// A wrong argument is named with its value, and stops the program.
TEST(Options, NamesWhatIsWrong) {
  const std::vector<std::vector<const char*>> wrong = {{"-m", "5:3"},
                                                       {"-m", "4:2G"},
                                                       {"-m", "1:2", "-T", "double"},
                                                       {"-T", "complex"},
                                                       {"--vs", "staged"},
                                                       {"-d", "tape"},
                                                       {"-d", "cuda", "--alloc-mem"},
                                                       {"-i", "0"},
                                                       {"-i", "many"},
                                                       {"-x", "-1"},
                                                       {"-M", "some"},
                                                       {"--vs", "ucc"},
                                                       {"--rounds", "3"},
                                                       {"--rounds", "9"},
                                                       {"--max-seconds", "nan"}};
  for (const auto& arguments : wrong) {
    const Parsed parsed = parse(Kind::allreduce, arguments);
    EXPECT_FALSE(parsed.run) << arguments[0] << ' ' << arguments[1];
    EXPECT_EQ(parsed.code, 2) << arguments[0] << ' ' << arguments[1];
    EXPECT_NE(parsed.text.find(arguments[1]), std::string::npos) << parsed.text;
  }
  EXPECT_EQ(parse(Kind::latency, {"--vs", "mpi"}).code, 2);
}

TEST(Options, MemoryIsBoundUnlessItIsLeftOut) {
  const Parsed refused = parse(Kind::allreduce, {"-M", "1M", "-m", "1G"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.text.find("-M 1M: buffers for messages of 1073741824 bytes take 4097M"),
            std::string::npos)
      << refused.text;
  EXPECT_TRUE(parse(Kind::allreduce, {"-M", "4097M", "-m", "1G"}).run);
  EXPECT_TRUE(parse(Kind::bcast, {"-M", "2049M", "-m", "1G"}).run)
      << "its buffers are not received in others";
  EXPECT_EQ(parse(Kind::bcast, {"-M", "2048M", "-m", "1G"}).code, 2);
  EXPECT_EQ(parse(Kind::latency, {}).options.memory, std::size_t{256} << 20);
  const Options large = parse(Kind::latency, {"-m", "1G"}).options;
  EXPECT_EQ(large.memory, least_memory(large, 2));
}

// Of two ranks at least; how many there are is known later.
TEST(Options, MemoryOfAnAllgatherIsBoundByTheRanks) {
  EXPECT_EQ(parse(Kind::allgather, {"-M", "6M", "-m", "1M"}).code, 2);
  Parsed given = parse(Kind::allgather, {"-M", "7M", "-m", "1M"});
  ASSERT_TRUE(given.run) << given.text;
  EXPECT_EQ(fit_memory(given.options, 2), "");
  EXPECT_EQ(fit_memory(given.options, 3),
            "-M 7M: buffers for messages of 1048576 bytes take 9M; give -M that much, or end -m sooner");
  Options free = parse(Kind::allgather, {"-m", "1G"}).options;
  EXPECT_EQ(free.memory, least_memory(free, 2));
  EXPECT_EQ(fit_memory(free, 5), "");
  EXPECT_EQ(free.memory, least_memory(free, 5));
  EXPECT_GT(free.memory, std::size_t{12} << 30);
  EXPECT_EQ(free.most_buffers, 63U);
}

TEST(Options, MoreMemoryHasMoreBuffers) {
  EXPECT_EQ(parse(Kind::allreduce, {}).options.most_buffers, 63U);
  EXPECT_EQ(parse(Kind::allreduce, {"-M", "64M"}).options.most_buffers, 63U);
  EXPECT_EQ(parse(Kind::allreduce, {"-M", "1G"}).options.most_buffers, 252U);
  EXPECT_EQ(parse(Kind::allreduce, {"-m", "1G"}).options.most_buffers, 63U);
}

TEST(Options, InPlaceIsOfSumsThatStayNumbers) {
  const Options in_place = parse(Kind::allreduce, {"--in-place", "--vs", "mpi"}).options;
  EXPECT_TRUE(in_place.in_place);
  EXPECT_EQ(in_place.pools(), 1U) << "and so each message may have twice the memory";
  EXPECT_EQ(parse(Kind::allreduce, {"--vs", "mpi"}).options.pools(), 2U);
  EXPECT_EQ(parse(Kind::allreduce, {"--in-place", "-T", "mpi_int"}).code, 2);
  EXPECT_EQ(parse(Kind::allreduce, {"--in-place", "-d", "cuda", "--vs", "staged"}).code, 2);
  EXPECT_EQ(parse(Kind::bcast, {"--in-place"}).code, 2);
  EXPECT_EQ(parse(Kind::reduce, {"--in-place"}).code, 2);
}

TEST(Options, AnAllgatherInPlaceIsOfAnyType) {
  const Parsed in_place = parse(Kind::allgather, {"--in-place", "-T", "mpi_int"});
  ASSERT_TRUE(in_place.run) << in_place.text;
  EXPECT_EQ(in_place.options.pools(), 1U);
  EXPECT_EQ(in_place.options.send_bytes(8, 3), 24U) << "it is the result as well";
  EXPECT_EQ(parse(Kind::allgather, {"--in-place", "-d", "cuda", "--vs", "staged"}).code, 2);
}

TEST(Options, RoundsAreThoseOfAComparison) {
  EXPECT_EQ(parse(Kind::allreduce, {"--vs", "mpi", "--rounds", "9"}).options.rounds, 9);
  EXPECT_EQ(parse(Kind::allreduce, {"--vs", "mpi"}).options.rounds, 41);
}

TEST(Options, TheRootOfAComparisonMovesUnlessItIsFixed) {
  for (const Kind kind : {Kind::bcast, Kind::reduce}) {
    EXPECT_FALSE(parse(kind, {"--vs", "mpi"}).options.fixed_root);
    EXPECT_FALSE(parse(kind, {"--vs", "mpi", "--root", "moving"}).options.fixed_root);
    EXPECT_TRUE(parse(kind, {"--vs", "mpi", "--root", "fixed"}).options.fixed_root);
    EXPECT_NE(parse(kind, {"--root", "fixed"}).text.find("--root fixed"), std::string::npos);
    EXPECT_EQ(parse(kind, {"--vs", "mpi", "--root", "1"}).code, 2);
  }
  for (const Kind kind : {Kind::allreduce, Kind::allgather})
    EXPECT_EQ(parse(kind, {"--vs", "mpi", "--root", "fixed"}).code, 2) << "it has none";
}

TEST(Options, ABarrierHasNoMessages) {
  const Parsed parsed = parse(Kind::barrier, {"--vs", "mpi", "-i", "7"});
  ASSERT_TRUE(parsed.run) << parsed.text;
  EXPECT_EQ(parsed.options.sizes(), std::vector<std::size_t>{0});
  for (const char* option : {"-m", "-T", "-d", "-M", "-c", "--alloc-mem", "--warm-buffers", "--root"})
    EXPECT_EQ(parse(Kind::barrier, {option, "8"}).code, 2) << option;
  EXPECT_EQ(parse(Kind::barrier, {"--vs", "staged"}).code, 2);
}

TEST(Options, TheLastOfSeveralCounts) {
  const Parsed parsed = parse(Kind::latency, {"-m", "8", "-i", "3", "-c", "-m", "4:4", "-i", "7", "-c"});
  ASSERT_TRUE(parsed.run) << parsed.text;
  EXPECT_EQ(parsed.options.sizes(), std::vector<std::size_t>{4});
  EXPECT_EQ(parsed.options.iterations, 7);
}

TEST(Options, WhatIsNotExpectedIsSaidInItsOrder) {
  const Parsed parsed = parse(Kind::latency, {"-W", "4"});
  EXPECT_EQ(parsed.code, 2);
  EXPECT_EQ(parsed.text, "heddle_latency: not expected: -W 4; see --help\n");
}

TEST(Options, HelpIsOfTheProgram) {
  for (const Kind kind :
       {Kind::latency, Kind::bandwidth, Kind::bidirectional, Kind::iallreduce, Kind::ibcast}) {
    const std::string text = parse(kind, {"-h"}).text;
    EXPECT_EQ(text.find("--vs"), std::string::npos) << text;
    EXPECT_EQ(text.find("each side"), std::string::npos) << text;
  }
  // help2man tells an option from its description by two blanks, or a line's end.
  const std::string text = parse(Kind::allreduce, {"-h"}).text;
  EXPECT_NE(text.find("\n  --rounds INT in [6 - 10000]\n   "), std::string::npos) << text;
  EXPECT_NE(text.find("\n  --vs {mpi,staged}           measure"), std::string::npos) << text;
}

TEST(Options, HelpAndVersionSucceed) {
  const Parsed help = parse(Kind::bandwidth, {"-h"});
  EXPECT_FALSE(help.run);
  EXPECT_EQ(help.code, 0);
  EXPECT_NE(help.text.find("--window-size"), std::string::npos);
  const Parsed version = parse(Kind::bandwidth, {"-v"});
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.text.rfind("heddle_bw ", 0), 0U) << version.text;
}

}  // namespace
}  // namespace heddle::bench
