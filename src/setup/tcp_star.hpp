// The start of a communicator over TCP: every rank has one connection to rank 0, which gathers and hands
// back.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "transports/tcp/socket.hpp"

namespace heddle {

// Where ranks meet. `address` and `port` are rank 0's.
struct Rendezvous {
  int rank = 0;
  int size = 1;
  std::string address;
  int port = 0;
  std::string job;  // what names the job, "SLURM_JOB_ID=17"; "": nothing does
};

// How long the start is waited for.
struct StartWait {
  std::chrono::milliseconds timeout{0};
  std::chrono::milliseconds warn_after{0};  // what takes longer is said, once; 0: never
  LogLevel log_level = LogLevel::warn;
};

namespace star {
struct Frame;
}

// Used by one thread at a time. After an error only destruction makes sense.
class TcpStar {
 public:
  // Collective: returns when all ranks are connected, or at the deadline with a status that names the missing
  // ranks (on rank 0, which tells the others). Every connection opens with a handshake of magic, version,
  // rank, size and job: what does not match is refused and does not disturb the rest.
  static Result<std::unique_ptr<TcpStar>> connect(const Rendezvous& where, const StartWait& wait);

  // Collective; `bytes` must be equal on all ranks, which is checked. `all` holds size * bytes.
  Status allgather(const void* mine, void* all, std::size_t bytes);

 private:
  struct Newcomer;
  using Frame = star::Frame;
  struct Arrival;

  TcpStar(Rendezvous where, const StartWait& wait);

  std::uint32_t job() const;
  void expect_soon();
  // True once, when what is waited for since expect_soon() is worth a line.
  bool warning_due();

  Status gather_peers();
  Status admit_until(const Socket& listener, Deadline deadline);
  int drop_gone(std::span<const std::size_t> ranks, std::span<const pollfd> entries);
  Status accept_all(const Socket& listener, std::vector<Newcomer>& newcomers, int& connected);
  std::string name_missing() const;
  std::string notes(bool patient);
  bool greet(Newcomer& newcomer);
  void refuse(Newcomer& newcomer, const std::string& why);
  Status join_root();
  Result<bool> knock(Deadline deadline);
  Status allgather_root(const void* mine, void* all, std::size_t bytes);
  Status collect(std::vector<Arrival>& arrivals, std::size_t bytes, std::byte* all);
  Status take(Arrival& arrival, int rank, std::size_t bytes, std::byte* all);
  Status allgather_leaf(const void* mine, void* all, std::size_t bytes);
  Status read_error(const Frame& frame, Deadline deadline);
  Status no_answer(const Status& why) const;
  Status expect(std::uint32_t kind, std::size_t bytes, Deadline deadline);
  Status tell_all(std::uint32_t kind, std::uint32_t sequence, const void* data, std::size_t bytes);
  Status fail_all(Status status);
  std::string place() const;

  Rendezvous where_;
  StartWait wait_;
  Log log_;
  Deadline warn_at_;
  std::uint32_t sequence_ = 0;
  std::vector<Socket> peers_;         // rank 0: by rank; the others: rank 0's connection alone
  std::vector<std::string> refused_;  // rank 0: whom it turned away and why, for who asks for them
  bool own_address_ = true;           // rank 0: `address` is its host's, as far as known
};

// "3 s", "300 ms"
std::string star_seconds(std::chrono::milliseconds time);

// "rank 3", "ranks 2, 3, 7", "ranks 1, 2, ... and 40 more": at most eight by name.
std::string name_ranks(const std::vector<int>& ranks);

}  // namespace heddle
