#include <barrier>
#include <cstring>
#include <memory>
#include <thread>

#include "comm/communicator.hpp"
#include "heddle_info/info.hpp"
#include "select/catalog.hpp"

namespace heddle::info {
namespace {

constexpr std::size_t kLargest = std::size_t{64} << 20;

// An allgather among threads.
class Meeting {
 public:
  explicit Meeting(int size) : size_(static_cast<std::size_t>(size)), barrier_(size) {}

  Status allgather(int rank, const void* mine, void* all, std::size_t bytes) {
    if (rank == 0) buffer_.resize(bytes * size_);
    barrier_.arrive_and_wait();
    if (bytes != 0) std::memcpy(buffer_.data() + static_cast<std::size_t>(rank) * bytes, mine, bytes);
    barrier_.arrive_and_wait();
    if (bytes != 0) std::memcpy(all, buffer_.data(), buffer_.size());
    barrier_.arrive_and_wait();
    return {};
  }

 private:
  std::size_t size_;
  std::barrier<> barrier_;
  std::vector<std::byte> buffer_;
};

void ask(Communicator& communicator, ChosenAlgorithms& chosen) {
  chosen.communicator = communicator.describe();
  for (const Collective collective : kChosenCollectives) {
    for (std::size_t bytes = 4; bytes <= kLargest; bytes *= 2) {
      const std::string name = communicator.algorithm(collective, bytes);
      std::vector<SizeRange>& ranges = chosen.ranges;
      if (!ranges.empty() && ranges.back().collective == collective && ranges.back().algorithm == name) {
        ranges.back().last_bytes = bytes;
      } else {
        ranges.push_back({collective, bytes, bytes, name});
      }
    }
  }
}

}  // namespace

ChosenAlgorithms ask_communicator(int ranks, const Config& config) {
  ChosenAlgorithms chosen;
  chosen.ranks = ranks;
  Meeting meeting(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Bootstrap bootstrap;
      bootstrap.rank = rank;
      bootstrap.size = ranks;
      bootstrap.allgather = [&meeting, rank](const void* mine, void* all, std::size_t bytes) {
        return meeting.allgather(rank, mine, all, bytes);
      };
      Result<std::unique_ptr<Communicator>> communicator = Communicator::create(bootstrap, config);
      if (rank != 0) return;
      if (communicator.ok()) {
        ask(*communicator.value(), chosen);
      } else {
        chosen.error = communicator.status().message();
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  return chosen;
}

}  // namespace heddle::info
