// Messages over TCP sockets: one connection for each pair of ranks that talk, made when they first do.
//
// Where a network has nothing better, a small message costs one system call on either side here, and three
// with a library that looks for events first. Progress reads only the connections that something is expected
// of (where these are many it looks for events first, too); the others, and those who want to connect, have
// their turn before a sleep and every now and then.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "transports/tcp/known_ways.hpp"
#include "transports/tcp/peer.hpp"
#include "transports/transport.hpp"

namespace heddle::tcp {

class TcpTransport final : public Transport {
 public:
  struct Setup {
    Socket listener;
    std::uint64_t key = 0;           // own
    std::vector<Address> addresses;  // own
    std::chrono::milliseconds timeout{0};
    std::shared_ptr<KnownWays> ways = std::make_shared<KnownWays>();
    // Congestion control of its connections, which `listener` has already, and of those to ranks that are not
    // near; empty: as it is.
    std::string congestion = {};
    std::string congestion_if_far = {};
  };
  // Read ahead of each connection: messages of 16 KiB at once, with their frames.
  static constexpr std::size_t kBuffer = (std::size_t{16} << 10) + sizeof(Frame);
  // Enough to empty what a peer may have sent that nobody received, and an end to it.
  static constexpr int kMostReadsAtEnd = 64;

  // `places` by rank, those that are never reached without addresses.
  static Result<std::unique_ptr<TcpTransport>> make(Setup setup, int rank, std::vector<Place> places);
  ~TcpTransport() override;

  const TransportCapabilities& capabilities() const override { return capabilities_; }
  Status send(int peer, std::uint32_t tag, const void* data, std::size_t bytes, Ticket& ticket) override;
  Status recv(int peer, std::uint32_t tag, void* data, std::size_t bytes, Ticket& ticket) override;
  Status progress() override;
  void cancel(Ticket& ticket) override;
  std::string trouble(int peer) const override;
  bool peer_is_gone(int peer) const override { return at(peer).state == Peer::State::gone; }
  void leave(const Departure& why) override;
  Departure peer_left_for(int peer) const override { return at(peer).left_for; }
  Departure culprit() const override { return culprit_; }
  std::uint64_t moved() const override { return moved_; }
  int wake_descriptor() const override { return events_.fd(); }
  bool arm() override;

  // "2 connections"
  int connections() const;

 private:
  TcpTransport(Setup setup, Socket events, int rank, std::vector<Place> places);

  Peer& at(int peer) { return peers_[static_cast<std::size_t>(peer)]; }
  const Peer& at(int peer) const { return peers_[static_cast<std::size_t>(peer)]; }

  // tcp_transport.cpp
  void activate(Peer& peer);
  void open_receive(Peer& peer, const Receiving& receive);
  void take_early(Peer& peer, std::size_t place, const Receiving& receive);
  void drop_early(Peer& peer, std::size_t place);
  void release(Peer& peer, std::uint32_t tag);
  bool take_ready(Peer& peer, std::uint32_t tag);
  void wrong_length(const Peer& peer, std::size_t length, std::size_t expected);
  void blame_buffer(const Peer& peer, const char* done, std::size_t left);
  // `left`: the peer has ended the connection, and knows why.
  void fail(Peer& peer, const std::string& why, bool left = false);
  void give_up(Peer& peer);
  void lose(Peer& peer, Status failure);
  static bool is_expected(const Peer& peer);
  void finish_first(Peer& peer);
  Departure cause(const Peer& peer) const;
  Status missed(const Peer& peer);
  bool is_known(int rank) const;

  // streams.cpp
  void push(Peer& peer, std::size_t most = SIZE_MAX);
  void pull(Peer& peer);
  void parse(Peer& peer, std::size_t bytes);
  void begin(Peer& peer, const Frame& frame);
  void begin_data(Peer& peer, const Frame& frame);
  void hear_announcement(Peer& peer, const Frame& frame);
  void end_arriving(Peer& peer);

  // connecting.cpp
  std::chrono::milliseconds connect_within() const;
  void connect(Peer& peer);
  void try_next(Peer& peer);
  Socket open_socket(int family);
  void note_failure(Peer& peer, std::size_t which, const std::string& why);
  void await(Peer& peer, bool promised);
  void serve_attempt(Peer& peer, int fd);
  void greet(Peer& peer, Attempt& attempt);
  void drop_attempts(Peer& peer);
  void read_answer(Peer& peer, Attempt& attempt);
  void end_attempt(Peer& peer, Attempt& attempt);
  void be_refused(Peer& peer, std::size_t address);
  void look_at_connecting(Peer& peer, TimePoint now);

  // connections.cpp
  struct Stranger {
    Socket socket;
    Greeting greeting{};
    std::size_t read = 0;
    TimePoint give_up;
  };
  bool serve_events();
  void serve_peer(Peer& peer, std::uint32_t events);
  bool drop_oldest_stranger();
  void accept_all();
  void serve_stranger(int fd);
  void judge(Stranger stranger);
  void welcome(Peer& peer, Socket socket);
  void be_connected(Peer& peer);
  void look_how_far(const Socket& socket) const;
  void drop(Socket& socket);
  void look_at_clock();
  void watch_listener();
  static std::uint64_t attempt_name(int rank, int fd);
  void watch(const Socket& socket, std::uint64_t name, std::uint32_t events);
  void watch_for_room(Peer& peer, bool wanted);
  void leave_unread(Peer& peer, bool on);
  void watch_connected(const Peer& peer);

  Setup setup_;
  Socket events_;  // epoll
  int rank_;
  TransportCapabilities capabilities_;
  std::vector<Peer> peers_;
  std::vector<Peer*> active_;  // those with something open
  std::vector<Stranger> strangers_;
  Status error_;
  Departure culprit_;        // for whose sake `error_` is, as far as known
  std::uint64_t moved_ = 0;  // bytes
  unsigned rounds_ = 0;
  unsigned expected_ = 0;  // peers that something was expected of, in the last round
  TimePoint finish_by_;    // what was begun and given up
  std::int64_t next_look_ms_ = 0;
  TimePoint looked_;  // at the clock
};

}  // namespace heddle::tcp
