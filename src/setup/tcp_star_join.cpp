// The start over TCP, by the ranks other than 0.
#include <poll.h>

#include <algorithm>
#include <thread>

#include "setup/tcp_star.hpp"
#include "setup/tcp_star_wire.hpp"

namespace heddle {

using namespace star;

Status TcpStar::join_root() {
  using std::chrono::milliseconds;
  const Deadline deadline = std::chrono::steady_clock::now() + wait_.timeout;
  peers_.resize(1);
  milliseconds pause{5};
  for (;;) {
    Status last;
    Result<Socket> socket = tcp_connect(where_.address, where_.port, std::min(deadline, warn_at_));
    if (socket.ok()) {
      peers_[0] = std::move(socket).value();
      Result<bool> joined = knock(deadline);
      if (joined.ok() && joined.value()) break;
      if (!joined.ok() && joined.status().code() != Code::peer_failed) return joined.status();
      last = joined.status();
    } else {
      last = socket.status();
    }
    if (last.code() == Code::out_of_memory) return last;
    if (warning_due()) {
      log_.warn("rank " + std::to_string(where_.rank) + " has tried to reach rank 0 at " + place() + " for " +
                star_seconds(wait_.warn_after) + ": " + last.message() +
                "; still trying (HEDDLE_TIMEOUT: " + star_seconds(wait_.timeout) + ")");
    }
    if (milliseconds_until(deadline) == 0) {
      return Status(Code::timeout, "rank " + std::to_string(where_.rank) + " could not reach rank 0 at " +
                                       place() + " within " + star_seconds(wait_.timeout) +
                                       " (HEDDLE_TIMEOUT): " + last.message() +
                                       "; check MASTER_ADDR and MASTER_PORT, and that rank 0 was started");
    }
    std::this_thread::sleep_for(std::min(pause, milliseconds(milliseconds_until(deadline))));
    pause = std::min(pause * 2, milliseconds(200));
  }
  return expect(kGo, 0, std::chrono::steady_clock::now() + wait_.timeout + kGrace);
}

// The status rank 0 put into an error frame.
Status TcpStar::read_error(const Frame& frame, Deadline deadline) {
  std::string text(std::min<std::size_t>(frame.bytes, kLongestText), '\0');
  HEDDLE_TRY(tcp_read_all(peers_[0], text.data(), text.size(), deadline));
  const bool known = frame.sequence > 0 && frame.sequence <= static_cast<std::uint32_t>(Code::internal);
  return Status(known ? static_cast<Code>(frame.sequence) : Code::peer_failed, std::move(text));
}

// Says who we are. `peer_failed`: worth another try, because rank 0 may be between two communicators and
// close the connections it did not accept.
Result<bool> TcpStar::knock(Deadline deadline) {
  Greeting hello;
  hello.rank = static_cast<std::uint32_t>(where_.rank);
  hello.size = static_cast<std::uint32_t>(where_.size);
  hello.job = job();
  if (Status status = tcp_write_all(peers_[0], &hello, sizeof(hello), deadline); !status.ok()) return status;
  Frame frame;
  const std::string other =
      ". Is it another program, such as a launcher's own store? Then set HEDDLE_MASTER_PORT to a free port, "
      "the same "
      "on all ranks";
  pollfd entry{peers_[0].fd(), POLLIN, 0};
  if (::poll(&entry, 1, milliseconds_until(std::min(deadline, warn_at_))) == 0 && warning_due())
    log_.warn("whoever listens at " + place() + " has not answered as rank 0 does for " +
              star_seconds(wait_.warn_after) + other);
  if (Status status = tcp_read_all(peers_[0], &frame, sizeof(frame), deadline); !status.ok()) {
    return Status(status.code(), "whoever listens at " + place() +
                                     " does not answer as rank 0 does: " + status.message() + other);
  }
  if (frame.magic == kMagic && frame.kind == kWelcome) return true;
  if (frame.magic == kMagic && frame.kind == kError) {
    Status refused = read_error(frame, deadline);
    if (refused.code() != Code::invalid_argument || where_.job.empty()) return refused;
    return Status(refused.code(), refused.message() + " (this rank's job: " + where_.job + ")");
  }
  return Status(Code::system, "another program than rank 0 answers at " + place() +
                                  "; set MASTER_PORT or HEDDLE_MASTER_PORT to a port nobody uses");
}

Status TcpStar::allgather_leaf(const void* mine, void* all, std::size_t bytes) {
  if (peers_.empty()) return Status(Code::peer_failed, "the start over TCP has failed before");
  const Deadline deadline = std::chrono::steady_clock::now() + wait_.timeout + kGrace;
  Frame frame;
  frame.kind = kData;
  frame.sequence = sequence_;
  frame.bytes = bytes;
  Status status = tcp_write_all(peers_[0], &frame, sizeof(frame), deadline);
  if (status.ok()) status = tcp_write_all(peers_[0], mine, bytes, deadline);
  if (!status.ok()) status = no_answer(status);
  const std::size_t total = bytes * static_cast<std::size_t>(where_.size);
  // Also after a failed write: rank 0 may have said why before it closed the connection.
  if (Status answer = expect(kData, total, deadline); !answer.ok()) status = std::move(answer);
  if (status.ok()) {
    if (Status rest = tcp_read_all(peers_[0], all, total, deadline); !rest.ok()) status = no_answer(rest);
  }
  if (!status.ok()) peers_.clear();
  return status;
}

Status TcpStar::no_answer(const Status& why) const {
  return Status(why.code(), "rank 0 at " + place() + " gave no answer during the start: " + why.message());
}

// Reads the head of a frame of this kind and length; an error frame becomes a status.
Status TcpStar::expect(std::uint32_t kind, std::size_t bytes, Deadline deadline) {
  Frame frame;
  if (Status status = tcp_read_all(peers_[0], &frame, sizeof(frame), deadline); !status.ok())
    return no_answer(status);
  if (frame.magic == kMagic && frame.kind == kError) return read_error(frame, deadline);
  if (frame.magic != kMagic || frame.kind != kind || frame.sequence != sequence_ || frame.bytes != bytes) {
    return Status(Code::internal, "rank 0 at " + place() + " sent something else than step " +
                                      std::to_string(sequence_) + " of the start");
  }
  return {};
}

}  // namespace heddle
