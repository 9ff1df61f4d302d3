#include "comm/tcp_star.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

namespace heddle {
namespace {

// "heddle" and a format version; sent in the machine's byte order, so another byte order does not match.
constexpr std::uint64_t kMagic = 0x656c646465680001ULL;
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kLongestText = 2048;
constexpr std::size_t kMostNotes = 4;
// Rank 0's message, which names the missing ranks, is worth waiting for beyond one's own deadline.
constexpr std::chrono::milliseconds kGrace{2000};

struct Hello {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint32_t reserved = 0;
};

enum Kind : std::uint32_t { kWelcome = 1, kGo = 2, kData = 3, kError = 4 };

std::string seconds(std::chrono::milliseconds time) {
  const auto ms = time.count();
  if (ms % 1000 == 0) return std::to_string(ms / 1000) + " s";
  return std::to_string(ms) + " ms";
}

}  // namespace

std::string name_ranks(const std::vector<int>& ranks) {
  constexpr std::size_t kMostNamed = 8;
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  const std::size_t named = std::min(ranks.size(), kMostNamed);
  for (std::size_t i = 0; i < named; ++i)
    out += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (named < ranks.size()) out += " and " + std::to_string(ranks.size() - named) + " more";
  return out;
}

struct TcpStar::Frame {
  std::uint64_t magic = kMagic;
  std::uint32_t kind = 0;
  std::uint32_t sequence = 0;  // kError: the status code
  std::uint64_t bytes = 0;
};

// A connection that has not said who it is yet.
struct TcpStar::Newcomer {
  Socket socket;
  Hello hello;
  std::size_t got = 0;
};

// What has come of one rank's contribution.
struct TcpStar::Arrival {
  Frame frame;
  std::size_t got = 0;  // of frame, then of the data
  bool done = false;
};

std::string TcpStar::place() const {
  const bool ipv6 = where_.address.find(':') != std::string::npos;
  return (ipv6 ? "[" + where_.address + "]" : where_.address) + ":" + std::to_string(where_.port);
}

Result<std::unique_ptr<TcpStar>> TcpStar::connect(const Rendezvous& where,
                                                  std::chrono::milliseconds timeout) {
  std::unique_ptr<TcpStar> star(new TcpStar(where, timeout));
  HEDDLE_TRY(where.rank == 0 ? star->gather_peers() : star->join_root());
  return star;
}

Status TcpStar::allgather(const void* mine, void* all, std::size_t bytes) {
  ++sequence_;
  return where_.rank == 0 ? allgather_root(mine, all, bytes) : allgather_leaf(mine, all, bytes);
}

// ---- Rank 0 ----

Status TcpStar::gather_peers() {
  const Deadline deadline = std::chrono::steady_clock::now() + timeout_;
  peers_.resize(static_cast<std::size_t>(where_.size));
  Result<Socket> listener = tcp_listen(where_.port);
  if (!listener.ok()) {
    return Status(
        listener.status().code(),
        "rank 0 cannot listen on port " + std::to_string(where_.port) + ": " + listener.status().message() +
            ". A launcher's own store (torchrun's) may be using MASTER_PORT: set HEDDLE_MASTER_PORT to a "
            "free port, the same on all ranks");
  }
  if (Status status = admit_until(listener.value(), deadline); !status.ok())
    return fail_all(std::move(status));
  if (Status status = tell_all(kGo, 0, nullptr, 0); !status.ok()) return fail_all(std::move(status));
  return {};
}

// Accepts and greets until every rank is connected. Connections are read side by side: one that stays silent
// holds nobody up.
Status TcpStar::admit_until(const Socket& listener, Deadline deadline) {
  const std::size_t most_newcomers = static_cast<std::size_t>(where_.size) + 64;
  std::vector<Newcomer> newcomers;
  int connected = 1;
  while (connected < where_.size) {
    std::vector<pollfd> entries{{listener.fd(), POLLIN, 0}};
    for (const Newcomer& newcomer : newcomers)
      entries.push_back({newcomer.socket.fd(), POLLIN, 0});
    const int left = milliseconds_until(deadline);
    const int ready = ::poll(entries.data(), entries.size(), left);
    if (ready < 0 && errno != EINTR) return system_error("poll", errno);
    if (left == 0 && ready <= 0) break;
    for (Newcomer& newcomer : newcomers) {
      if (greet(newcomer)) ++connected;
    }
    std::erase_if(newcomers, [](const Newcomer& newcomer) { return !newcomer.socket.open(); });
    for (;;) {
      Result<Socket> socket = tcp_accept(listener);
      if (!socket.ok()) return socket.status();
      if (!socket->open()) break;
      if (newcomers.size() >= most_newcomers) newcomers.erase(newcomers.begin());
      newcomers.push_back(Newcomer{std::move(socket).value(), {}, 0});
    }
  }
  if (connected == where_.size) return {};
  std::vector<int> missing;
  for (int r = 1; r < where_.size; ++r) {
    if (!peers_[static_cast<std::size_t>(r)].open()) missing.push_back(r);
  }
  std::string message = name_ranks(missing) + " of " + std::to_string(where_.size) + " did not connect to " +
                        place() + " within " + seconds(timeout_) +
                        " (HEDDLE_TIMEOUT); check MASTER_ADDR and MASTER_PORT, and that they were started";
  for (const std::string& note : refused_)
    message += "; " + note;
  return Status(Code::timeout, std::move(message));
}

// Reads what has come; true when the newcomer became a peer. Its socket is given away or closed unless there
// is more to come.
bool TcpStar::greet(Newcomer& newcomer) {
  Result<std::size_t> got = tcp_read_some(
      newcomer.socket, reinterpret_cast<char*>(&newcomer.hello) + newcomer.got, sizeof(Hello) - newcomer.got);
  if (!got.ok()) {
    newcomer.socket.close();
    return false;
  }
  newcomer.got += got.value();
  const Hello& hello = newcomer.hello;
  // Not ours: a port scanner, say. It gets no answer.
  if (newcomer.got >= sizeof(hello.magic) && hello.magic != kMagic) {
    if (refused_.size() < kMostNotes) {
      refused_.push_back("a connection from " + tcp_peer_address(newcomer.socket) +
                         " that is not heddle's was closed");
    }
    newcomer.socket.close();
    return false;
  }
  if (newcomer.got < sizeof(Hello)) return false;
  const std::string size = std::to_string(where_.size);
  if (hello.version != kVersion) {
    refuse(newcomer, "it speaks version " + std::to_string(hello.version) +
                         " of the start-up protocol, rank 0 version " + std::to_string(kVersion) +
                         ": the ranks run different heddles");
  } else if (hello.size != static_cast<std::uint32_t>(where_.size)) {
    refuse(newcomer, "its WORLD_SIZE is " + std::to_string(hello.size) + ", that of rank 0 is " + size);
  } else if (hello.rank == 0 || hello.rank >= hello.size) {
    refuse(newcomer, "rank 0 is here already, and the others are 1 to " + std::to_string(where_.size - 1));
  } else if (peers_[hello.rank].open()) {
    refuse(newcomer,
           "rank " + std::to_string(hello.rank) + " is connected already: two processes have the same RANK");
  } else {
    Frame welcome;
    welcome.kind = kWelcome;
    if (!tcp_write_all(newcomer.socket, &welcome, sizeof(welcome), std::chrono::steady_clock::now()).ok()) {
      newcomer.socket.close();
      return false;
    }
    peers_[hello.rank] = std::move(newcomer.socket);
    return true;
  }
  return false;
}

void TcpStar::refuse(Newcomer& newcomer, const std::string& why) {
  const std::string who =
      "rank " + std::to_string(newcomer.hello.rank) + " at " + tcp_peer_address(newcomer.socket);
  const std::string text = who + " was refused: " + why;
  if (refused_.size() < kMostNotes) refused_.push_back(text);
  Frame frame;
  frame.kind = kError;
  frame.sequence = static_cast<std::uint32_t>(Code::invalid_argument);
  frame.bytes = text.size();
  // A fresh connection's buffer takes this at once; if it does not, the other end is not worth waiting for.
  const Deadline now = std::chrono::steady_clock::now();
  if (tcp_write_all(newcomer.socket, &frame, sizeof(frame), now).ok()) {
    static_cast<void>(tcp_write_all(newcomer.socket, text.data(), text.size(), now));
  }
  newcomer.socket.close();
}

Status TcpStar::tell_all(std::uint32_t kind, std::uint32_t sequence, const void* data, std::size_t bytes) {
  const Deadline deadline = std::chrono::steady_clock::now() + timeout_;
  Frame frame;
  frame.kind = kind;
  frame.sequence = sequence;
  frame.bytes = bytes;
  Status first;
  for (std::size_t r = 1; r < peers_.size(); ++r) {
    if (!peers_[r].open()) continue;
    Status status = tcp_write_all(peers_[r], &frame, sizeof(frame), deadline);
    if (status.ok()) status = tcp_write_all(peers_[r], data, bytes, deadline);
    if (status.ok()) continue;
    peers_[r].close();
    if (first.ok()) {
      first = Status(status.code(),
                     "rank " + std::to_string(r) + " did not take rank 0's answer: " + status.message());
    }
  }
  return first;
}

// Tells the others why, so that every rank reports the same sentence.
Status TcpStar::fail_all(Status status) {
  const std::string text = status.message().substr(0, kLongestText);
  static_cast<void>(tell_all(kError, static_cast<std::uint32_t>(status.code()), text.data(), text.size()));
  peers_.clear();
  return status;
}

Status TcpStar::allgather_root(const void* mine, void* all, std::size_t bytes) {
  if (peers_.empty()) return Status(Code::peer_failed, "the start over TCP has failed before");
  auto* out = static_cast<std::byte*>(all);
  if (bytes != 0) std::memmove(out, mine, bytes);
  std::vector<Arrival> arrivals(peers_.size());
  arrivals[0].done = true;
  if (Status status = collect(arrivals, bytes, out); !status.ok()) return fail_all(std::move(status));
  if (Status status = tell_all(kData, sequence_, all, bytes * peers_.size()); !status.ok())
    return fail_all(std::move(status));
  return {};
}

Status TcpStar::collect(std::vector<Arrival>& arrivals, std::size_t bytes, std::byte* all) {
  const Deadline deadline = std::chrono::steady_clock::now() + timeout_;
  for (;;) {
    std::vector<pollfd> entries;
    std::vector<int> waiting;
    for (std::size_t r = 1; r < peers_.size(); ++r) {
      if (arrivals[r].done) continue;
      entries.push_back({peers_[r].fd(), POLLIN, 0});
      waiting.push_back(static_cast<int>(r));
    }
    if (waiting.empty()) return {};
    const int left = milliseconds_until(deadline);
    const int ready = ::poll(entries.data(), entries.size(), left);
    if (ready < 0 && errno != EINTR) return system_error("poll", errno);
    if (ready <= 0 && left == 0) {
      return Status(Code::timeout, name_ranks(waiting) + " of " + std::to_string(where_.size) +
                                       " did not join a step of the start within " + seconds(timeout_) +
                                       " (HEDDLE_TIMEOUT)");
    }
    if (ready <= 0) continue;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].revents == 0) continue;
      HEDDLE_TRY(take(arrivals[static_cast<std::size_t>(waiting[i])], waiting[i], bytes, all));
    }
  }
}

// Reads what there is of one rank's frame and data.
Status TcpStar::take(Arrival& arrival, int rank, std::size_t bytes, std::byte* all) {
  const Socket& socket = peers_[static_cast<std::size_t>(rank)];
  const std::string who = "rank " + std::to_string(rank) + " at " + tcp_peer_address(socket);
  const bool in_frame = arrival.got < sizeof(Frame);
  std::byte* to = in_frame ? reinterpret_cast<std::byte*>(&arrival.frame) + arrival.got
                           : all + static_cast<std::size_t>(rank) * bytes + (arrival.got - sizeof(Frame));
  const std::size_t end = in_frame ? sizeof(Frame) : sizeof(Frame) + bytes;
  Result<std::size_t> got = tcp_read_some(socket, to, end - arrival.got);
  if (!got.ok())
    return Status(got.status().code(), who + " left during the start: " + got.status().message());
  arrival.got += got.value();
  if (arrival.got < sizeof(Frame)) return {};
  const Frame& frame = arrival.frame;
  if (frame.magic != kMagic || frame.kind != kData || frame.sequence != sequence_) {
    return Status(Code::internal,
                  who + " sent something else than step " + std::to_string(sequence_) + " of the start");
  }
  if (frame.bytes != bytes) {
    return Status(Code::peer_failed, who + " has " + std::to_string(frame.bytes) +
                                         " bytes to gather, rank 0 has " + std::to_string(bytes) +
                                         ": the ranks run different heddles or programs");
  }
  arrival.done = arrival.got == sizeof(Frame) + bytes;
  return {};
}

// ---- The other ranks ----

Status TcpStar::join_root() {
  using std::chrono::milliseconds;
  const Deadline deadline = std::chrono::steady_clock::now() + timeout_;
  peers_.resize(1);
  milliseconds pause{5};
  for (;;) {
    Status last;
    Result<Socket> socket = tcp_connect(where_.address, where_.port, deadline);
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
    if (milliseconds_until(deadline) == 0) {
      return Status(Code::timeout, "rank " + std::to_string(where_.rank) + " could not reach rank 0 at " +
                                       place() + " within " + seconds(timeout_) +
                                       " (HEDDLE_TIMEOUT): " + last.message() +
                                       "; check MASTER_ADDR and MASTER_PORT, and that rank 0 was started");
    }
    std::this_thread::sleep_for(std::min(pause, milliseconds(milliseconds_until(deadline))));
    pause = std::min(pause * 2, milliseconds(200));
  }
  return expect(kGo, 0, std::chrono::steady_clock::now() + timeout_ + kGrace);
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
  Hello hello;
  hello.rank = static_cast<std::uint32_t>(where_.rank);
  hello.size = static_cast<std::uint32_t>(where_.size);
  if (Status status = tcp_write_all(peers_[0], &hello, sizeof(hello), deadline); !status.ok()) return status;
  Frame frame;
  if (Status status = tcp_read_all(peers_[0], &frame, sizeof(frame), deadline); !status.ok()) {
    return Status(status.code(), "whoever listens at " + place() +
                                     " does not answer as rank 0 does: " + status.message() +
                                     ". Is it another program, such as a launcher's own store? Then set "
                                     "HEDDLE_MASTER_PORT to a free port, the same on all ranks");
  }
  if (frame.magic == kMagic && frame.kind == kWelcome) return true;
  if (frame.magic == kMagic && frame.kind == kError) {
    return read_error(frame, deadline);
  }
  return Status(Code::system, "another program than rank 0 answers at " + place() +
                                  "; set MASTER_PORT or HEDDLE_MASTER_PORT to a port nobody uses");
}

Status TcpStar::allgather_leaf(const void* mine, void* all, std::size_t bytes) {
  if (peers_.empty()) return Status(Code::peer_failed, "the start over TCP has failed before");
  const Deadline deadline = std::chrono::steady_clock::now() + timeout_ + kGrace;
  Frame frame;
  frame.kind = kData;
  frame.sequence = sequence_;
  frame.bytes = bytes;
  Status status = tcp_write_all(peers_[0], &frame, sizeof(frame), deadline);
  if (status.ok()) status = tcp_write_all(peers_[0], mine, bytes, deadline);
  const std::size_t total = bytes * static_cast<std::size_t>(where_.size);
  // Also after a failed write: rank 0 may have said why before it closed the connection.
  if (Status answer = expect(kData, total, deadline); !answer.ok()) status = std::move(answer);
  if (status.ok()) status = tcp_read_all(peers_[0], all, total, deadline);
  if (!status.ok()) peers_.clear();
  return status;
}

// Reads the head of a frame of this kind and length; an error frame becomes a status.
Status TcpStar::expect(std::uint32_t kind, std::size_t bytes, Deadline deadline) {
  Frame frame;
  if (Status status = tcp_read_all(peers_[0], &frame, sizeof(frame), deadline); !status.ok()) {
    return Status(status.code(),
                  "rank 0 at " + place() + " gave no answer during the start: " + status.message());
  }
  if (frame.magic == kMagic && frame.kind == kError) {
    return read_error(frame, deadline);
  }
  if (frame.magic != kMagic || frame.kind != kind || frame.sequence != sequence_ || frame.bytes != bytes) {
    return Status(Code::internal, "rank 0 at " + place() + " sent something else than step " +
                                      std::to_string(sequence_) + " of the start");
  }
  return {};
}

}  // namespace heddle
