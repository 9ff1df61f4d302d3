// One rank of a job without MPI over several hosts (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT).
//
//   conform      every collective, type, operation and kind of count; results are compared
//   loop [S]     allreduces without end, or for about S seconds; says "pid N" once they run, and how it ended
//   busy S       rank 1 says "busy" and computes for S seconds between two allreduces
//   large        one allreduce of 24 MiB
//   late         the last rank comes seconds late to many bcasts; says "rank N took M MiB" for them
//   overlap      requests complete while their caller does something else
//   elsewhere    what a rank has sent arrives although it goes on with another communicator
//   contacts     says how many file descriptors a communicator takes, with more and more peers
//   rounds N     makes N communicators one after the other, each with a barrier
//
// Exit status 1: something was wrong. 3: a collective failed, and said why.
#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <complex>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "heddle/heddle.hpp"
#include "heddle/heddle_sparse.h"
#include "support/expected_fold.hpp"

namespace {

using heddle::testing_ranks::expected;
using heddle::testing_ranks::value;

int me = 0;
int ranks = 1;
heddle_comm_t comm = nullptr;

template <typename... Values>
[[noreturn]] void wrong(const char* format, Values... values) {
  char text[512];
  std::snprintf(text, sizeof text, format, values...);
  std::printf("WRONG on rank %d: %s\n", me, text);
  std::fflush(stdout);
  std::_Exit(1);
}

void must(heddle_status status, const char* what) {
  if (status == HEDDLE_OK) return;
  std::printf("rank %d: %s: %s: %s\n", me, what, heddle_status_name(status), heddle_last_error());
  std::fflush(stdout);
  std::_Exit(3);
}

template <typename T>
void check_allreduce(std::size_t count, heddle_op op) {
  std::vector<T> in(count);
  for (std::size_t i = 0; i < count; ++i)
    in[i] = static_cast<T>(value(me, i));
  std::vector<T> out(count, static_cast<T>(99));
  const heddle_dtype type = heddle::api::dtype_of<T>::value;
  must(heddle_allreduce(in.data(), out.data(), count, type, op, comm), "allreduce");
  heddle_request_t request = nullptr;
  must(heddle_iallreduce(HEDDLE_IN_PLACE, in.data(), count, type, op, comm, &request), "iallreduce");
  must(heddle_wait(&request), "wait");
  for (std::size_t i = 0; i < count; ++i) {
    if (out[i] != expected<T>(op, ranks, i) || in[i] != out[i])
      wrong("type %d, operation %d, %zu elements: element %zu", type, op, count, i);
  }
}

template <typename T>
void check_type() {
  std::vector<heddle_op> ops = {HEDDLE_SUM, HEDDLE_PROD};
  if (std::is_arithmetic_v<T>) ops.insert(ops.end(), {HEDDLE_MIN, HEDDLE_MAX});
  if (std::is_integral_v<T>) ops.insert(ops.end(), {HEDDLE_BAND, HEDDLE_BOR, HEDDLE_BXOR});
  // None, fewer than ranks, around what UCX sends at once and by handshake.
  for (const heddle_op op : ops) {
    for (const std::size_t count : {0, 1, 3, 65, 2049, 20'011})
      check_allreduce<T>(count, op);
  }
  check_allreduce<T>(150'001, HEDDLE_SUM);
}

void check_bcasts() {
  for (const std::size_t bytes : {0, 1, 63, 5000, 70'000, 1'000'003}) {
    for (int root = 0; root < ranks; ++root) {
      std::vector<unsigned char> data(bytes);
      const auto at = [&](std::size_t i) { return static_cast<unsigned char>(i * 7 + bytes + root); };
      for (std::size_t i = 0; i < bytes && me == root; ++i)
        data[i] = at(i);
      must(heddle_bcast(data.data(), bytes, root, comm), "bcast");
      for (std::size_t i = 0; i < bytes; ++i) {
        if (data[i] != at(i)) wrong("bcast of %zu from %d: byte %zu", bytes, root, i);
      }
    }
  }
}

// Several at once, with a barrier in between, completed in another order than started.
void check_overlap() {
  constexpr int kOpen = 8;
  std::vector<std::vector<std::int64_t>> data(kOpen);
  std::vector<heddle_request_t> requests(kOpen);
  for (int k = 0; k < kOpen; ++k) {
    data[k].assign(k % 2 == 0 ? 10 : 40'000, me + k);
    must(heddle_iallreduce(HEDDLE_IN_PLACE, data[k].data(), data[k].size(), HEDDLE_INT64, HEDDLE_SUM, comm,
                           &requests[k]),
         "iallreduce");
    if (k == 3) must(heddle_barrier(comm), "barrier");
  }
  for (int k = kOpen - 1; k >= 0; --k) {
    must(heddle_wait(&requests[k]), "wait");
    for (const std::int64_t x : data[k]) {
      if (x != std::int64_t{ranks} * (ranks - 1) / 2 + std::int64_t{ranks} * k) wrong("overlapping %d", k);
    }
  }
}

void check_sparse() {
  constexpr std::uint64_t kDimension = 1 << 20;
  constexpr std::uint64_t kShared = 77;  // which every rank has
  for (const std::size_t count : {0, 1, 500, 30'000}) {
    std::vector<std::uint32_t> indices;
    std::vector<float> values;
    if (count > 0) indices.push_back(kShared);
    for (std::size_t i = 1; i < count; ++i)
      indices.push_back(static_cast<std::uint32_t>(1000 + i * 16 + static_cast<std::size_t>(me)));
    values.assign(indices.size(), static_cast<float>(me + 1));
    heddle_sparse in{};
    in.dimension = kDimension;
    in.count = indices.size();
    in.value_type = HEDDLE_FLOAT32;
    in.indices = indices.data();
    in.values = values.data();
    std::vector<float> dense(kDimension, -1.F);
    must(heddle_sparse_allreduce_dense(&in, dense.data(), HEDDLE_SUM, comm), "sparse allreduce");
    std::vector<float> wanted(kDimension, 0.F);
    for (int r = 0; r < ranks; ++r) {
      if (count > 0) wanted[kShared] += static_cast<float>(r + 1);
      for (std::size_t i = 1; i < count; ++i)
        wanted[1000 + i * 16 + static_cast<std::size_t>(r)] = static_cast<float>(r + 1);
    }
    if (dense != wanted) wrong("sparse allreduce of %zu entries", count);
  }
}

// Who waits for this rank sees that it goes on, however slowly.
void say(const char* what) {
  std::printf("rank %d: %s\n", me, what);
  std::fflush(stdout);
}

int conform() {
  check_type<std::int8_t>();
  check_type<std::int16_t>();
  check_type<std::int32_t>();
  check_type<std::int64_t>();
  say("signed integers are right");
  check_type<std::uint8_t>();
  check_type<std::uint16_t>();
  check_type<std::uint32_t>();
  check_type<std::uint64_t>();
  say("unsigned integers are right");
  check_type<float>();
  check_type<double>();
  check_type<long double>();
  say("real numbers are right");
  check_type<std::complex<float>>();
  check_type<std::complex<double>>();
  say("complex numbers are right");
  check_bcasts();
  check_overlap();
  say("broadcasts are right");
  check_sparse();
  must(heddle_barrier(comm), "barrier");
  std::printf("rank %d of %d: all results are right\n", me, ranks);
  return 0;
}

// The same value from every rank: the number of ranks, in a sum. Returns whether any rank gave `last`.
bool sum_ones(std::size_t count, bool last = false) {
  std::vector<float> data(count, 1.F);
  if (last) data[0] = 1.5F;
  must(heddle_allreduce(HEDDLE_IN_PLACE, data.data(), count, HEDDLE_FLOAT32, HEDDLE_SUM, comm), "allreduce");
  if (data[count - 1] != static_cast<float>(ranks)) wrong("a sum of %d ranks", ranks);
  return data[0] != static_cast<float>(ranks);
}

int loop(double seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  for (int round = 0;; ++round) {
    sum_ones(300'000);
    // What the ranks' clocks say must not part them.
    const bool enough = std::chrono::duration<double>(Clock::now() - begin).count() > seconds;
    if (sum_ones(100, enough)) return 0;
    if (round > 0) continue;
    std::printf("rank %d pid %d\n", me, getpid());
    std::fflush(stdout);
  }
}

int busy(int seconds) {
  sum_ones(1000);
  if (me == 1) {
    std::printf("busy\n");
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::seconds(seconds));
  }
  sum_ones(1000);
  sum_ones(100'000);
  return 0;
}

int large() {
  std::vector<float> data(std::size_t{6} << 20, 1.F);
  must(heddle_allreduce(HEDDLE_IN_PLACE, data.data(), data.size(), HEDDLE_FLOAT32, HEDDLE_SUM, comm),
       "allreduce");
  if (data.front() != static_cast<float>(ranks) || data.back() != data.front())
    wrong("a sum of %g", data.back());
  return 0;
}

long peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

int late() {
  constexpr int kBcasts = 2500;
  std::vector<unsigned char> data(200'000);
  must(heddle_barrier(comm), "barrier");
  const long before = peak_mib();
  if (me == ranks - 1) std::this_thread::sleep_for(std::chrono::seconds(3));
  for (int i = 0; i < kBcasts; ++i) {
    const auto number = static_cast<unsigned char>(i);
    if (me == 0) data.front() = data.back() = number;
    must(heddle_bcast(data.data(), data.size(), 0, comm), "bcast");
    if (data.front() != number || data.back() != number) wrong("bcast %d", i);
  }
  must(heddle_barrier(comm), "barrier");
  std::printf("rank %d took %ld MiB\n", me, peak_mib() - before);
  return 0;
}

// What is not complete after the time that the caller was elsewhere has not been moved meanwhile: one look is
// not enough for a sum of this length.
int overlap() {
  const auto elsewhere = [] { std::this_thread::sleep_for(std::chrono::seconds(2)); };
  std::vector<float> data(250'000, 1.F);
  for (int round = 0; round < 3; ++round) {
    heddle_request_t request = nullptr;
    must(heddle_iallreduce(HEDDLE_IN_PLACE, data.data(), data.size(), HEDDLE_FLOAT32, HEDDLE_MAX, comm,
                           &request),
         "iallreduce");
    elsewhere();
    int done = 0;
    must(heddle_test(&request, &done), "test");
    if (done == 0) wrong("an allreduce that nobody waited for, round %d, is not complete", round);
    must(heddle_barrier(comm), "barrier");
  }
  heddle_request_t request = nullptr;
  must(heddle_ibcast(data.data(), data.size() * sizeof(float), 0, comm, &request), "ibcast");
  elsewhere();
  int done = 0;
  must(heddle_test(&request, &done), "test");
  if (done == 0) wrong("a bcast from rank %d that nobody waited for is not complete", 0);
  return 0;
}

// More than sockets take while nobody reads: the end of it is still in the sender when its broadcast is over.
int elsewhere() {
  heddle_comm_t other = nullptr;
  must(heddle_comm_create_env(&other), "create");
  std::vector<unsigned char> data(32 << 20, static_cast<unsigned char>(me == 0 ? 7 : 0));
  for (int round = 0; round < 3; ++round) {
    if (me != 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    must(heddle_bcast(data.data(), data.size(), 0, comm), "bcast");
    if (data.back() != 7) wrong("a broadcast of %zu bytes", data.size());
    must(heddle_barrier(other), "barrier");
  }
  must(heddle_comm_destroy(other), "destroy");
  return 0;
}

int descriptors() {
  int count = -3;  // ., .., and the one of this look
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr)
    ++count;
  closedir(folder);
  return count;
}

// With each step every rank talks to one more.
int contacts(int before) {
  std::printf("rank %d descriptors %d", me, descriptors() - before);
  must(heddle_barrier(comm), "barrier");
  std::vector<float> one(1);
  for (int i = 0; i < 20; ++i)
    must(heddle_allreduce(HEDDLE_IN_PLACE, one.data(), 1, HEDDLE_FLOAT32, HEDDLE_SUM, comm), "allreduce");
  std::printf(" %d", descriptors() - before);
  for (int distance = 1; distance <= ranks / 2; ++distance) {
    const int up = (me + distance) % ranks;
    const int down = (me + ranks - distance) % ranks;
    char byte = 0;
    // One after the other around the ring, so that nobody waits in a circle.
    for (int turn = 0; turn < ranks; ++turn) {
      if (turn == me) must(heddle_send(&byte, 1, up, comm), "send");
      if (turn == down) must(heddle_recv(&byte, 1, down, comm), "recv");
    }
    must(heddle_barrier(comm), "barrier");
    std::printf(" %d", descriptors() - before);
  }
  std::printf("\n");
  return 0;
}

int rounds(int count) {
  for (int i = 0; i < count; ++i) {
    must(heddle_barrier(comm), "barrier");
    must(heddle_comm_destroy(comm), "destroy");
    must(heddle_comm_create_env(&comm), "create");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "conform";
  const int number = argc > 2 ? std::atoi(argv[2]) : 0;
  const char* rank = std::getenv("RANK");
  me = rank != nullptr ? std::atoi(rank) : 0;
  const int before = descriptors();
  must(heddle_comm_create_env(&comm), "create");
  heddle_comm_size(comm, &ranks);
  int status = 2;
  if (mode == "conform") status = conform();
  if (mode == "loop") status = loop(number > 0 ? number : 1e9);
  if (mode == "busy") status = busy(number);
  if (mode == "large") status = large();
  if (mode == "late") status = late();
  if (mode == "overlap") status = overlap();
  if (mode == "elsewhere") status = elsewhere();
  if (mode == "contacts") status = contacts(before);
  if (mode == "rounds") status = rounds(number);
  must(heddle_comm_destroy(comm), "destroy");
  return status;
}
