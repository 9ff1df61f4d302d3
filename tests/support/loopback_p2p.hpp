// A heddle_p2p for tests, in place of the host MPI's: messages over a loopback hub.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>

#include "base/clock.hpp"
#include "heddle/heddle.h"
#include "transports/loopback/loopback.hpp"

namespace heddle::test {

// What all ranks' messages go through one after the other. Its time is what it has carried: nothing else
// takes any, so that what is measured on it does not depend on who else runs on the cores.
class Wire {
 public:
  explicit Wire(std::chrono::nanoseconds message_takes) : message_takes_(message_takes) {}
  void carry() { ++messages_; }
  Clock clock() const {
    return [this] { return TimePoint(messages_.load() * message_takes_); };
  }

 private:
  const std::chrono::nanoseconds message_takes_;
  std::atomic<std::int64_t> messages_{0};
};

// One rank's lender. Counts what heddle must balance: opened and closed requests, releases.
class LoopbackP2p {
 public:
  LoopbackP2p(LoopbackHub& hub, int rank) : transport_(hub.transport(rank)) {}

  heddle_p2p functions() {
    heddle_p2p p{};
    p.send = [](const void* data, size_t bytes, int peer, int tag, void* request, void* context) {
      if (self(context).wire != nullptr) self(context).wire->carry();
      return self(context).open(request, tag, [&](Transport& t, Ticket& ticket) {
        return t.send(peer, static_cast<std::uint32_t>(tag), data, bytes, ticket);
      });
    };
    p.recv = [](void* data, size_t bytes, int peer, int tag, void* request, void* context) {
      return self(context).open(request, tag, [&](Transport& t, Ticket& ticket) {
        return t.recv(peer, static_cast<std::uint32_t>(tag), data, bytes, ticket);
      });
    };
    p.test = [](void* request, int* done, void* context) { return self(context).test(request, done); };
    p.cancel = [](void* request, void* context) { return self(context).cancel(request); };
    p.release = [](void* context) { ++self(context).releases; };
    p.context = this;
    return p;
  }

  int opened = 0;
  int closed = 0;
  int releases = 0;
  Wire* wire = nullptr;  // may be null
  bool fail_sends = false;
  bool fail_tests = false;
  bool holds_cancelled = false;  // as an MPI that cannot take back what it moves already
  int largest_tag = -1;

 private:
  static LoopbackP2p& self(void* context) { return *static_cast<LoopbackP2p*>(context); }
  static Ticket* ticket_in(void* request) {
    Ticket* ticket = nullptr;
    std::memcpy(&ticket, request, sizeof ticket);
    return ticket;
  }

  template <typename Start>
  int open(void* request, int tag, Start start) {
    largest_tag = std::max(largest_tag, tag);
    if (fail_sends) return 1;
    auto ticket = std::make_unique<Ticket>();
    if (!start(*transport_, *ticket).ok()) return 1;
    Ticket* owned = ticket.release();
    std::memcpy(request, &owned, sizeof owned);
    ++opened;
    return 0;
  }
  int test(void* request, int* done) {
    if (fail_tests) return 1;
    if (!transport_->progress().ok()) return 1;
    Ticket* ticket = ticket_in(request);
    *done = ticket->done ? 1 : 0;
    if (ticket->done) {
      ++closed;
      delete ticket;
    }
    return 0;
  }
  int cancel(void* request) {
    Ticket* ticket = ticket_in(request);
    transport_->cancel(*ticket);
    delete ticket;
    ++closed;
    return holds_cancelled ? 1 : 0;
  }

  std::unique_ptr<Transport> transport_;
};

}  // namespace heddle::test
