// A heddle_p2p for tests, in place of the host MPI's: messages over a loopback hub.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "heddle/heddle.h"
#include "transports/loopback/loopback.hpp"

namespace heddle::test {

// One rank's lender. Counts what heddle must balance: opened and closed requests, releases.
class LoopbackP2p {
 public:
  LoopbackP2p(LoopbackHub& hub, int rank) : transport_(hub.transport(rank)) {}

  heddle_p2p functions() {
    heddle_p2p p{};
    p.send = [](const void* data, size_t bytes, int peer, int tag, void* request, void* context) {
      self(context).queue_up();
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
  // Where it is not null: what all ranks' sends go through one after the other, and take that long for.
  std::mutex* bottleneck = nullptr;
  std::chrono::microseconds send_takes{0};
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

  void queue_up() const {
    if (bottleneck == nullptr) return;
    const std::lock_guard lock(*bottleneck);
    std::this_thread::sleep_for(send_takes);
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
