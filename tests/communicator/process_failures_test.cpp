// Ranks that are processes: one that dies is named at once, and nothing stays behind.
#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "communicator/party.hpp"

namespace heddle::test {
namespace {

// An allgather over memory that all processes inherit.
struct Table {
  std::atomic<int> arrived[64];
  std::byte data[64][8][2048];
};

Bootstrap process_bootstrap(Table& table, int rank, int size) {
  Bootstrap b;
  b.rank = rank;
  b.size = size;
  b.allgather = [&table, rank, size, round = 0](const void* mine, void* all, std::size_t bytes) mutable {
    const int k = round++;
    if (bytes > 2048) return Status(Code::internal, "the test's table is too small");
    std::memcpy(table.data[k][rank], mine, bytes);
    ++table.arrived[k];
    while (table.arrived[k].load() < size)
      sched_yield();
    for (int r = 0; r < size; ++r)
      std::memcpy(static_cast<std::byte*>(all) + static_cast<std::size_t>(r) * bytes, table.data[k][r],
                  bytes);
    return Status();
  };
  return b;
}

int objects_in_dev_shm(const std::vector<pid_t>& pids) {
  int found = 0;
  DIR* directory = opendir("/dev/shm");
  while (const dirent* entry = directory != nullptr ? readdir(directory) : nullptr) {
    for (const pid_t pid : pids) {
      const std::string prefix = "heddle-" + std::to_string(pid) + "-";
      found += std::strncmp(entry->d_name, prefix.c_str(), prefix.size()) == 0 ? 1 : 0;
    }
  }
  if (directory != nullptr) closedir(directory);
  return found;
}

// Runs `body(rank, communicator)` in processes; returns their exit statuses, each reaped as soon as it ends.
template <typename Body>
std::vector<int> in_processes(int size, const Config& config, Body body, std::vector<pid_t>* pids) {
  auto* table = static_cast<Table*>(
      mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  for (int r = 0; r < size; ++r) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      auto comm = Communicator::create(process_bootstrap(*table, r, size), config);
      _exit(comm.ok() ? body(r, *comm.value()) : 99);
    }
    pids->push_back(child);
  }
  std::vector<int> results(static_cast<std::size_t>(size), -1);
  for (int i = 0; i < size; ++i) {
    int status = 0;
    const pid_t pid = wait(&status);
    for (std::size_t r = 0; r < pids->size(); ++r) {
      if ((*pids)[r] == pid) results[r] = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
  }
  munmap(table, sizeof(Table));
  return results;
}

TEST(ProcessFailures, ProcessesWorkAndLeaveNothingBehind) {
  for (const char* backing : {"memfd", "posix"}) {
    Config config = quiet();
    config.shm_backing = backing;
    std::vector<pid_t> pids;
    const auto results = in_processes(
        3, config,
        [](int rank, Communicator& comm) {
          for (std::uint64_t i = 0; i < 200; ++i) {
            const std::size_t count = i % 10 == 0 ? 20'000 : i;
            std::vector<std::int64_t> data = terms(rank, count, i);
            if (!comm.allreduce(data.data(), data.data(), count, DType::i64, Op::sum).ok()) return 1;
            if (data != sums(3, count, i)) return 2;
          }
          return 0;
        },
        &pids);
    EXPECT_EQ(results, std::vector<int>(3, 0)) << backing;
    EXPECT_EQ(objects_in_dev_shm(pids), 0);
  }
}

TEST(ProcessFailures, AProcessThatDiesIsNamedWithoutADeadline) {
  for (const std::size_t bytes : {8, 3'000'000}) {
    Config config = quiet();
    config.shm_backing = "posix";
    std::vector<pid_t> pids;
    const auto results = in_processes(
        4, config,
        [bytes](int rank, Communicator& comm) {
          std::vector<std::byte> data(bytes);
          if (!comm.barrier().ok()) return 1;
          if (rank == 2) kill(getpid(), SIGKILL);
          const Status status = comm.allreduce(data.data(), data.data(), bytes, DType::u8, Op::bor);
          if (status.code() != Code::peer_failed) return 2;
          return status.message().find("rank 2 (process ") != std::string::npos &&
                         status.message().find("is gone") != std::string::npos
                     ? 0
                     : 3;
        },
        &pids);
    EXPECT_EQ(results, (std::vector<int>{0, 0, 128 + SIGKILL, 0})) << bytes << " bytes";
    EXPECT_EQ(objects_in_dev_shm(pids), 0);
  }
}

// Those who have failed for its sake, and ended, are not named beside it.
TEST(ProcessFailures, WhoHasEndedForTheSakeOfAnotherIsNotNamed) {
  auto* ended = static_cast<std::atomic<pid_t>*>(mmap(
      nullptr, sizeof(std::atomic<pid_t>[4]), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<pid_t> pids;
  const auto results = in_processes(
      4, quiet(),
      [ended](int rank, Communicator& comm) {
        if (!comm.barrier().ok()) return 1;
        if (rank == 2) kill(getpid(), SIGKILL);
        // Until the parent has seen their end.
        const auto is_there = [ended](int other) {
          const pid_t process = ended[other];
          return process == 0 || kill(process, 0) == 0;
        };
        while (rank == 0 && (is_there(1) || is_there(3)))
          usleep(1000);
        char data[8] = {};
        const Status status = comm.bcast(data, sizeof data, 2);
        if (rank != 0) {
          ended[rank] = getpid();
          return status.ok() ? 2 : 0;
        }
        const std::string& said = status.message();
        const bool well =
            said.find("rank 2 (process ") == 0 && said.find(" is gone") == said.rfind(" is gone");
        if (!well) std::fprintf(stderr, "%s\n", said.c_str());
        return well ? 0 : 3;
      },
      &pids);
  EXPECT_EQ(results, (std::vector<int>{0, 0, 128 + SIGKILL, 0}));
  munmap(ended, sizeof(std::atomic<pid_t>[4]));
}

}  // namespace
}  // namespace heddle::test
