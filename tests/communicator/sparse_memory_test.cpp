// Sparse and compressed sums where memory runs out on one rank, at every allocation that a call makes in
// turn: it may say so before anything has happened, and then the same call meets the others; or the
// communicator has failed, and the others hear of it. Nobody is left waiting, and nobody meets another step
// than its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "communicator/party.hpp"
#include "compress/compression.hpp"
#include "support/failing_allocations.hpp"

namespace heddle::test {
namespace {

constexpr std::size_t kDimension = 6000;

// What one rank brings, and what it gets: nothing here is allocated in a call.
struct Part {
  Part(int rank, std::size_t every) : sum(kDimension), values(kDimension), out_indices(kDimension) {
    for (std::size_t i = static_cast<std::size_t>(rank) % every; i < kDimension; i += every) {
      indices.push_back(static_cast<std::uint32_t>(i));
      entries.push_back(static_cast<float>(rank + 1));
      values[i] = static_cast<float>(rank + 1);
    }
  }

  SparseView view() const {
    return {kDimension, indices.size(), IndexType::u32, DType::f32, indices.data(), entries.data()};
  }
  SparseJob job() {
    SparseJob job;
    job.in = view();
    job.deliver = [this](std::span<const SparseView> parts) {
      std::fill(sum.begin(), sum.end(), 0.0F);
      for (const SparseView& part : parts) {
        for (std::size_t i = 0; i < part.count; ++i)
          std::memcpy(&sum[part.index(i)], static_cast<const float*>(part.values) + i, sizeof(float));
      }
      return Status();
    };
    return job;
  }

  std::vector<std::uint32_t> indices;
  std::vector<float> entries;
  std::vector<float> sum;
  std::vector<float> values;  // all of the vector
  std::vector<std::uint32_t> out_indices;
};

struct Case {
  std::string name;
  std::string algorithm;
  std::size_t every;  // indices to an entry
  std::function<Status(Communicator&, Part&)> call;
  // What is to come out, by index; null: whatever it is.
  bool is_exact = true;
};

Status compressed(Communicator& comm, Part& part, const char* method) {
  const long armed = std::exchange(allocations_left, -1);  // what the test itself takes is there
  const Compression how = parse_compression(method).value();
  allocations_left = armed;
  return comm.compressed_allreduce({part.values.data(), part.sum.data(), kDimension, how});
}

// The sum by what the ranks bring.
void expect_sum(int ranks, std::size_t every, const std::vector<float>& sum) {
  std::vector<float> expected(kDimension);
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::size_t i = static_cast<std::size_t>(rank) % every; i < kDimension; i += every)
      expected[i] += static_cast<float>(rank + 1);
  }
  EXPECT_EQ(sum, expected);
}

// Whether the `number`th allocation of rank 1 in the call was reached, and so failed. In the first call on a
// communicator, which makes plans, only those are counted that are asked whether there is memory.
bool fails_at(const Case& what, const Nodes& nodes, long number, bool is_first) {
  Party party(nodes);
  for (int rank = 0; rank < party.size(); ++rank)
    party.lend_nothing(rank);  // whose owner says nothing of others
  Config config = quiet();
  config.timeout = std::chrono::seconds(20);
  config.algorithm = what.algorithm;
  std::atomic<bool> reached{false};
  std::atomic<int> through{0};
  party.run(config, [&](Rank& me, Communicator& comm) {
    me.at("call", static_cast<std::uint64_t>(number));
    Part part(me.rank, what.every);
    of_those_asked_alone = is_first;
    if (!is_first) {
      ASSERT_TRUE(what.call(comm, part).ok());
    }
    // As heddle.h says: who hears that memory was missing before its call began makes it again, and so does
    // who hears that another rank could not make its part ready.
    Status status;
    for (int tries = 0; tries < 3; ++tries) {
      if (me.rank == 1 && tries == 0) allocations_left = number;
      try {
        status = what.call(comm, part);
      } catch (const std::bad_alloc&) {
        status = Status(Code::out_of_memory, "thrown");
      }
      if (me.rank == 1 && tries == 0) {
        reached = allocations_left < 0;
        allocations_left = -1;
      }
      if (status.ok() || comm.failed()) break;
    }
    if (status.ok()) {
      if (what.is_exact) expect_sum(comm.size(), what.every, part.sum);
    } else if (comm.failed()) {
      const Code expected = me.rank == 1 ? Code::out_of_memory : Code::peer_failed;
      EXPECT_EQ(status.code(), expected) << me.rank << ": " << status.message();
    } else {
      ADD_FAILURE() << "rank " << me.rank << " tries in vain: " << status.message();
    }
    ++through;
    me.until([&] { return through.load() == comm.size(); });
  });
  return reached.load();
}

class SparseMemory : public ::testing::TestWithParam<Nodes> {};
INSTANTIATE_TEST_SUITE_P(Nodes, SparseMemory, ::testing::Values(Nodes{1, 1, 1}, Nodes{1, 2, 3}));

// Of all allocations of a second call these are tried: a communicator is made for each.
constexpr long kStride = kSlowBuild ? 40 : 10;

TEST_P(SparseMemory, NobodyMeetsAnotherStep) {
  const std::vector<Case> cases = {
      {"entries", "", 40, [](Communicator& comm, Part& part) { return comm.sparse_allreduce(part.job()); }},
      {"bitmaps", "sparse:bitmaps", 8,
       [](Communicator& comm, Part& part) { return comm.sparse_allreduce(part.job()); }},
      {"a vector", "sparse:dense", 2,
       [](Communicator& comm, Part& part) {
         SparseJob job = part.job();
         job.deliver = nullptr;
         job.dense = part.sum.data();
         return comm.sparse_allreduce(job);
       }},
      {"mostly zeros", "sparse:recursive_doubling", 40,
       [](Communicator& comm, Part& part) {
         return comm.mostly_zero_allreduce({part.values.data(), part.sum.data(), kDimension, DType::f32});
       }},
      {"whole", "sparse:dense", 2,
       [](Communicator& comm, Part& part) {
         return comm.mostly_zero_allreduce({part.values.data(), part.sum.data(), kDimension, DType::f32});
       }},
      {"topk", "", 40, [](Communicator& comm, Part& part) { return compressed(comm, part, "topk:0.05"); }},
      {"randomk", "", 40,
       [](Communicator& comm, Part& part) { return compressed(comm, part, "randomk:0.5"); }, false},
      {"qsgd", "", 2, [](Communicator& comm, Part& part) { return compressed(comm, part, "qsgd:8"); }, false},
      {"coded", "", 40,
       [](Communicator& comm, Part& part) {
         const Compression how{Compression::Method::codec, {Codec::f16}};
         return comm.coded_sparse_allreduce({part.view(), part.sum.data(), how});
       }},
      {"request", "", 40,
       [](Communicator& comm, Part& part) -> Status {
         Result<std::unique_ptr<Request>> made = comm.sparse_allreduce_request(part.job());
         if (!made.ok()) return made.status();
         HEDDLE_TRY(made.value()->start());
         return made.value()->wait();
       }},
  };
  for (const Case& what : cases) {
    for (const bool is_first : {true, false}) {
      for (long number = 0;; number += is_first ? 1 : kStride) {
        SCOPED_TRACE(what.name + (is_first ? ", first call" : ", second call") + ", allocation " +
                     std::to_string(number));
        if (!fails_at(what, GetParam(), number, is_first)) break;
      }
    }
  }
}

}  // namespace
}  // namespace heddle::test
