// The one implementation of UcxTransport: for ucx_transport.cpp, and nobody else.
#pragma once

#include <ucp/api/ucp.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "transports/ucx/ucx_transport.hpp"

namespace heddle {

class UcxMessages;

struct UcxPeer {
  UcxMessages* owner = nullptr;
  int rank = -1;
  std::string host;
  std::string address;  // until there is an endpoint
  ucp_ep_h endpoint = nullptr;
  ucs_status_t failure = UCS_OK;
  std::size_t unflushed = 0;  // bytes that were sent since the last flush began
  std::size_t unmatched = 0;  // bytes that were sent since a send last waited for its receive
  std::size_t flushing = 0;   // bytes that the flush under way is for
  void* flush = nullptr;      // of the endpoint; null: none is under way
  bool sent = false;          // anything: an endpoint that only looks whether the peer lives needs no flush
};

// A send or receive that UCX has. Outlives its ticket where UCX does not let go of it.
struct UcxOpen {
  Ticket* ticket = nullptr;  // null: given up
  UcxPeer* peer = nullptr;
  void* request = nullptr;  // null: UCX has let go of it
  std::size_t bytes = 0;
  std::int64_t since_ms = 0;
  bool receives = false;
  std::size_t place = 0;  // in open_
};

class UcxMessages final : public UcxTransport {
 public:
  UcxMessages(UcxWorker& worker, int rank, std::vector<UcxAddress> addresses);
  ~UcxMessages() override;

  const TransportCapabilities& capabilities() const override { return capabilities_; }
  Result<DeviceReach> add_memory(const DeviceMemory& memory) override;
  Status send(int peer, std::uint32_t tag, const void* data, std::size_t bytes, Ticket& ticket) override;
  Status recv(int peer, std::uint32_t tag, void* data, std::size_t bytes, Ticket& ticket) override;
  Status progress() override;
  std::size_t unsettled_bytes() const override;
  bool settled() override;
  void cancel(Ticket& ticket) override;
  bool peer_is_gone(int peer) const override;
  void leave(const Departure& why) override;
  Departure culprit() const override { return {culprit_}; }
  std::uint64_t moved() const override { return moved_; }
  int wake_descriptor() const override { return worker_.wake_descriptor(); }
  bool arm() override;
  UcxFootprint footprint() const override;

  // Makes the endpoint where there is none.
  Status connect(UcxPeer& peer);
  UcxPeer* first_peer();
  // Whether all peers can have a connection.
  Status check_descriptors() const;

 private:
  static void on_sent(void* request, ucs_status_t status, void* open);
  static void on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* open);
  static void on_failure(void* peer, ucp_ep_h, ucs_status_t status);

  UcxPeer& peer_of(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  static bool flushed(UcxPeer& peer);
  UcxOpen& remember(Ticket& ticket, UcxPeer& peer, std::size_t bytes, bool receives);
  void forget(UcxOpen& open);
  void complete(UcxOpen& open, ucs_status_t status, std::size_t length);
  Status opened(UcxOpen& open, ucs_status_ptr_t request);
  Status failed(const UcxPeer& peer, ucs_status_t status) const;
  Status wrong_length(const UcxOpen& open, std::size_t length) const;
  void note_movement();
  Status look_at_failures();
  Status watch_senders();
  void release(UcxOpen& open);
  void close(UcxPeer& peer, bool by_force);
  void end(bool by_force);
  void drop_worker();
  template <typename Condition>
  bool progress_until(Condition condition, std::chrono::milliseconds limit);

  UcxWorker& worker_;
  int rank_;
  std::vector<UcxPeer> peers_;
  std::deque<UcxOpen> pool_;  // records stay where they are
  std::vector<UcxOpen*> free_;
  std::vector<UcxOpen*> open_;
  std::vector<void*> closing_;
  std::vector<UcxPeer*> unsettled_;
  std::int64_t next_watch_ms_ = 0;
  bool peer_failed_ = false;  // since the last look
  Status error_;              // final
  int culprit_ = -1;          // the rank that failed, where that is the reason
  // Messages that are through, and looks at which UCX had something to do for a long one.
  std::uint64_t moved_ = 0;
  std::int64_t busy_since_ms_ = 0;
  std::int64_t busy_ms_ = 0;  // when it last had something to do
  TransportCapabilities capabilities_;
  bool takes_device_memory_ = false;  // UCX looks for itself where buffers lie
};

}  // namespace heddle
