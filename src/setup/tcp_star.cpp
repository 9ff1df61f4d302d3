// The start over TCP, by rank 0. The others: tcp_star_join.cpp.
#include "setup/tcp_star.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/hash.hpp"
#include "setup/tcp_star_wire.hpp"
#include "transports/host_name.hpp"

namespace heddle {

using namespace star;

namespace {

constexpr std::size_t kMostNotes = 4;

// Whether `address` is one of this host's: nobody else can be bound to it. True where that cannot be told.
// Names are only looked up where `patient`, which may take seconds.
bool is_own_address(const std::string& address, bool patient) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = patient ? 0 : AI_NUMERICHOST;
  addrinfo* raw = nullptr;
  if (::getaddrinfo(address.c_str(), nullptr, &hints, &raw) != 0) return true;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(raw, &::freeaddrinfo);
  for (const addrinfo* each = raw; each != nullptr; each = each->ai_next) {
    const Socket socket(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket.open() || ::bind(socket.fd(), each->ai_addr, each->ai_addrlen) == 0 || errno != EADDRNOTAVAIL)
      return true;
  }
  return false;
}

}  // namespace

std::string star_seconds(std::chrono::milliseconds time) {
  const auto ms = time.count();
  if (ms % 1000 == 0) return std::to_string(ms / 1000) + " s";
  return std::to_string(ms) + " ms";
}

std::string name_ranks(const std::vector<int>& ranks) {
  constexpr std::size_t kMostNamed = 8;
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  const std::size_t named = std::min(ranks.size(), kMostNamed);
  for (std::size_t i = 0; i < named; ++i)
    out += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (named < ranks.size()) out += " and " + std::to_string(ranks.size() - named) + " more";
  return out;
}

// A connection that has not said who it is yet.
struct TcpStar::Newcomer {
  Socket socket;
  Greeting hello;
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

// None is 0, which stands for no name.
std::uint32_t TcpStar::job() const {
  if (where_.job.empty()) return 0;
  return std::max(static_cast<std::uint32_t>(fnv1a(where_.job)), 1U);
}

TcpStar::TcpStar(Rendezvous where, const StartWait& wait)
    : where_(std::move(where)), wait_(wait), log_(wait.log_level, where_.rank) {
  expect_soon();
}

void TcpStar::expect_soon() {
  warn_at_ =
      wait_.warn_after.count() > 0 ? std::chrono::steady_clock::now() + wait_.warn_after : Deadline::max();
}

bool TcpStar::warning_due() {
  if (std::chrono::steady_clock::now() < warn_at_) return false;
  warn_at_ = Deadline::max();
  return true;
}

Result<std::unique_ptr<TcpStar>> TcpStar::connect(const Rendezvous& where, const StartWait& wait) {
  std::unique_ptr<TcpStar> star(new TcpStar(where, wait));
  HEDDLE_TRY(where.rank == 0 ? star->gather_peers() : star->join_root());
  return star;
}

Status TcpStar::allgather(const void* mine, void* all, std::size_t bytes) {
  ++sequence_;
  return where_.rank == 0 ? allgather_root(mine, all, bytes) : allgather_leaf(mine, all, bytes);
}

// ---- Rank 0 ----

Status TcpStar::gather_peers() {
  const Deadline deadline = std::chrono::steady_clock::now() + wait_.timeout;
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
  std::vector<Newcomer> newcomers;
  int connected = 1;
  while (connected < where_.size) {
    std::vector<pollfd> entries{{listener.fd(), POLLIN, 0}};
    for (const Newcomer& newcomer : newcomers)
      entries.push_back({newcomer.socket.fd(), POLLIN, 0});
    std::vector<std::size_t> watched;  // ranks
    for (std::size_t rank = 1; rank < peers_.size(); ++rank) {
      if (!peers_[rank].open()) continue;
      watched.push_back(rank);
      entries.push_back({peers_[rank].fd(), POLLIN, 0});
    }
    const int left = milliseconds_until(deadline);
    const int ready = ::poll(entries.data(), entries.size(), std::min(left, milliseconds_until(warn_at_)));
    if (ready < 0 && errno != EINTR) return system_error("poll", errno);
    connected -= drop_gone(watched, std::span(entries).last(watched.size()));
    for (Newcomer& newcomer : newcomers) {
      if (greet(newcomer)) ++connected;
    }
    std::erase_if(newcomers, [](const Newcomer& newcomer) { return !newcomer.socket.open(); });
    HEDDLE_TRY(accept_all(listener, newcomers, connected));
    if (left == 0) break;
    if (connected < where_.size && warning_due()) {
      log_.warn("waiting for " + name_missing() + " to connect to " + place() + " for " +
                star_seconds(wait_.warn_after) +
                "; still waiting (HEDDLE_TIMEOUT: " + star_seconds(wait_.timeout) + ")" + notes(true));
    }
  }
  if (connected == where_.size) return {};
  return Status(Code::timeout,
                name_missing() + " did not connect to " + place() + " within " + star_seconds(wait_.timeout) +
                    " (HEDDLE_TIMEOUT); check MASTER_ADDR and MASTER_PORT, and that they were started" +
                    notes(false));
}

// Of those that are connected, who say nothing before all are: one that can be read has ended, and its place
// is free for who is started again. Returns how many.
int TcpStar::drop_gone(std::span<const std::size_t> ranks, std::span<const pollfd> entries) {
  int gone = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (entries[i].revents == 0) continue;
    const std::size_t rank = ranks[i];
    char byte = 0;
    const Result<std::size_t> got = tcp_read_some(peers_[rank], &byte, 1);
    if (got.ok() && got.value() == 0) continue;
    peers_[rank].close();
    ++gone;
    if (refused_.size() < kMostNotes)
      refused_.push_back("rank " + std::to_string(rank) + " had connected, and left before all were there");
  }
  return gone;
}

// Who connects and says nothing takes no more descriptors than there are.
Status TcpStar::accept_all(const Socket& listener, std::vector<Newcomer>& newcomers, int& connected) {
  const std::size_t most = static_cast<std::size_t>(where_.size) + 64;
  for (;;) {
    Result<Socket> socket = tcp_accept(listener);
    if (!socket.ok() && socket.status().code() == Code::out_of_memory && !newcomers.empty()) {
      newcomers.erase(newcomers.begin());
      continue;
    }
    if (!socket.ok()) return socket.status();
    if (!socket->open()) return {};
    if (newcomers.size() >= most) newcomers.erase(newcomers.begin());
    newcomers.push_back(Newcomer{std::move(socket).value(), {}, 0});
    if (greet(newcomers.back())) ++connected;
    if (!newcomers.back().socket.open()) newcomers.pop_back();
  }
}

std::string TcpStar::name_missing() const {
  std::vector<int> missing;
  for (int r = 1; r < where_.size; ++r) {
    if (!peers_[static_cast<std::size_t>(r)].open()) missing.push_back(r);
  }
  return name_ranks(missing) + " of " + std::to_string(where_.size);
}

// What may be the reason why ranks are missing.
std::string TcpStar::notes(bool patient) {
  std::string text;
  for (const std::string& note : refused_)
    text += "; " + note;
  own_address_ = own_address_ && is_own_address(where_.address, patient);
  if (!own_address_)
    text += "; MASTER_ADDR is no address of rank 0's host " + host_name() +
            ", which is right only where something (a container's host, a router) passes connections on";
  return text;
}

// Reads what has come; true when the newcomer became a peer. Its socket is given away or closed unless there
// is more to come.
bool TcpStar::greet(Newcomer& newcomer) {
  Result<std::size_t> got =
      tcp_read_some(newcomer.socket, reinterpret_cast<char*>(&newcomer.hello) + newcomer.got,
                    sizeof(Greeting) - newcomer.got);
  if (!got.ok()) {
    newcomer.socket.close();
    return false;
  }
  newcomer.got += got.value();
  const Greeting& hello = newcomer.hello;
  // Not ours: a port scanner, say. It gets no answer.
  if (newcomer.got >= sizeof(hello.magic) && hello.magic != kMagic) {
    if (refused_.size() < kMostNotes) {
      refused_.push_back("a connection from " + tcp_peer_address(newcomer.socket) +
                         " that is not heddle's was closed");
    }
    newcomer.socket.close();
    return false;
  }
  if (newcomer.got < sizeof(Greeting)) return false;
  const std::string size = std::to_string(where_.size);
  if (hello.version != kVersion) {
    refuse(newcomer, "it speaks version " + std::to_string(hello.version) +
                         " of the start-up protocol, rank 0 version " + std::to_string(kVersion) +
                         ": the ranks run different heddles");
  } else if (hello.job != 0 && job() != 0 && hello.job != job()) {
    refuse(newcomer, "it is of another job than rank 0, whose " + where_.job +
                         ": a port is one job's alone. Give each job a MASTER_PORT (or HEDDLE_MASTER_PORT) "
                         "of its own, or, where this is "
                         "one job, all its ranks the same HEDDLE_JOB_ID");
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
  const Deadline deadline = std::chrono::steady_clock::now() + wait_.timeout;
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
  const Deadline deadline = std::chrono::steady_clock::now() + wait_.timeout;
  expect_soon();
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
    const int ready = ::poll(entries.data(), entries.size(), std::min(left, milliseconds_until(warn_at_)));
    if (ready < 0 && errno != EINTR) return system_error("poll", errno);
    if (warning_due()) {
      log_.warn("waiting for " + name_ranks(waiting) + " of " + std::to_string(where_.size) +
                " to join a step of the start for " + star_seconds(wait_.warn_after) + "; still waiting");
    }
    if (ready <= 0 && left == 0) {
      return Status(Code::timeout, name_ranks(waiting) + " of " + std::to_string(where_.size) +
                                       " did not join a step of the start within " +
                                       star_seconds(wait_.timeout) + " (HEDDLE_TIMEOUT)");
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
  const auto who = [&] { return "rank " + std::to_string(rank) + " at " + tcp_peer_address(socket); };
  const bool in_frame = arrival.got < sizeof(Frame);
  std::byte* to = in_frame ? reinterpret_cast<std::byte*>(&arrival.frame) + arrival.got
                           : all + static_cast<std::size_t>(rank) * bytes + (arrival.got - sizeof(Frame));
  const std::size_t end = in_frame ? sizeof(Frame) : sizeof(Frame) + bytes;
  Result<std::size_t> got = tcp_read_some(socket, to, end - arrival.got);
  if (!got.ok())
    return Status(got.status().code(), who() + " left during the start: " + got.status().message());
  arrival.got += got.value();
  if (arrival.got < sizeof(Frame)) return {};
  const Frame& frame = arrival.frame;
  if (frame.magic != kMagic || frame.kind != kData || frame.sequence != sequence_) {
    return Status(Code::internal,
                  who() + " sent something else than step " + std::to_string(sequence_) + " of the start");
  }
  if (frame.bytes != bytes) {
    return Status(Code::peer_failed, who() + " has " + std::to_string(frame.bytes) +
                                         " bytes to gather, rank 0 has " + std::to_string(bytes) +
                                         ": the ranks run different heddles or programs");
  }
  arrival.done = arrival.got == sizeof(Frame) + bytes;
  return {};
}

}  // namespace heddle
