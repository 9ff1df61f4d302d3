// One rank of a job without MPI whose buffers are GPU memory, on the double of CUDA's driver (its path is the
// argument): sums and bcasts until those ranks' GPUs and the network serve them, and then of several lengths;
// what comes is compared. Says how many bytes were copied between GPU and host by then. With "loop" it sums
// without end from then on. Exit status 1: something was wrong. 3: a collective failed, and said why.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "../gpu/cuda_memory.hpp"
#include "heddle/heddle.h"

namespace {

using heddle::test::Memory;
using heddle::test::TestDriver;
using heddle::test::TestMemory;

constexpr std::size_t kLeast = std::size_t{1}
                               << 18;  // elements: from 1 MiB on GPUs serve calls over several nodes
constexpr std::size_t kMost = kLeast + 3000;

int me = 0;
int ranks = 1;

void must(heddle_status status, const char* what) {
  if (status == HEDDLE_OK) return;
  std::printf("rank %d: %s: %s: %s\n", me, what, heddle_status_name(status), heddle_last_error());
  std::exit(3);
}

std::vector<std::int32_t> values(std::size_t count, int rank) {
  std::mt19937 random(static_cast<unsigned>(count) + 31U * static_cast<unsigned>(rank));
  std::vector<std::int32_t> all(count);
  for (std::int32_t& one : all)
    one = static_cast<std::int32_t>(random() % 1'000'000);
  return all;
}

void compare(const TestMemory& memory, const std::vector<std::int32_t>& wanted, const char* what) {
  std::vector<std::int32_t> got(wanted.size());
  memory.get(got.data(), got.size() * sizeof got[0]);
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == wanted[i]) continue;
    std::printf("WRONG on rank %d: %s of %zu: element %zu is %d, not %d\n", me, what, got.size(), i, got[i],
                wanted[i]);
    std::exit(1);
  }
}

void sum(heddle_comm_t comm, const TestMemory& memory, std::size_t count) {
  const std::vector<std::int32_t> mine = values(count, me);
  memory.put(mine.data(), count * sizeof mine[0]);
  must(heddle_allreduce(HEDDLE_IN_PLACE, memory.data(), count, HEDDLE_INT32, HEDDLE_SUM, comm), "allreduce");
  std::vector<std::int32_t> wanted(count);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<std::int32_t> theirs = values(count, rank);
    for (std::size_t i = 0; i < count; ++i)
      wanted[i] += theirs[i];
  }
  compare(memory, wanted, "a sum");
}

void bcast(heddle_comm_t comm, const TestMemory& memory, std::size_t count, int root) {
  const std::vector<std::int32_t> mine = values(count, me);
  memory.put(mine.data(), count * sizeof mine[0]);
  must(heddle_bcast(memory.data(), count * sizeof mine[0], root, comm), "bcast");
  compare(memory, values(count, root), "a bcast");
}

}  // namespace

int main(int argc, char** argv) {
  const bool loop = argc == 3 && std::strcmp(argv[2], "loop") == 0;
  if (argc != 2 && !loop) return 2;
  const TestDriver driver(argv[1]);
  const TestMemory memory(driver, Memory::device, kMost * sizeof(std::int32_t));
  heddle_comm_t comm = nullptr;
  must(heddle_comm_create_env(&comm), "comm_create");
  must(heddle_comm_rank(comm, &me), "comm_rank");
  must(heddle_comm_size(comm, &ranks), "comm_size");
  for (int i = 0; i < 9; ++i)
    sum(comm, memory, kLeast);
  const auto bytes = driver.find<std::size_t (*)(const char*)>("fake_cuda_bytes");
  const std::size_t before = bytes("cuMemcpyDtoHAsync") + bytes("cuMemcpyHtoDAsync");
  for (const std::size_t count : {kLeast, kLeast + 1, kMost}) {
    sum(comm, memory, count);
    for (int root = 0; root < ranks; ++root)
      bcast(comm, memory, count, root);
  }
  const std::size_t after = bytes("cuMemcpyDtoHAsync") + bytes("cuMemcpyHtoDAsync");
  std::printf("rank %d: all right, %zu bytes over the bus\n", me, after - before);
  std::fflush(stdout);
  if (loop) {
    for (;;)
      sum(comm, memory, kMost);
  }
  must(heddle_comm_destroy(comm), "comm_destroy");
  return 0;
}
