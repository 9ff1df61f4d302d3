// Messages over queue pairs of libibverbs; docs/verbs.md has the protocol.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "transports/transport.hpp"
#include "transports/verbs/datagrams.hpp"
#include "transports/verbs/deadlines.hpp"
#include "transports/verbs/device.hpp"
#include "transports/verbs/pages.hpp"
#include "transports/verbs/peer.hpp"

namespace heddle::verbs {

constexpr std::uint32_t kSlotBytes = 8192;  // an eager message with its header
constexpr std::uint16_t kCreditsPerPeer = 8;
constexpr std::uint32_t kSendDepth = 32;  // work requests of one connection at once
constexpr int kCompletionsPerPeer = static_cast<int>(kSendDepth) + kCreditsPerPeer;
constexpr std::size_t kMemoryPerPeer = std::size_t{kSlotBytes} * kCreditsPerPeer;

class VerbsTransport final : public Transport {
 public:
  // By rank; what is not reachable stays so.
  static Result<std::unique_ptr<Transport>> make(Device& device, Datagrams& datagrams, int rank,
                                                 const std::vector<std::string>& addresses,
                                                 const Deadlines& deadlines);
  ~VerbsTransport() override;

  const TransportCapabilities& capabilities() const override { return capabilities_; }
  Status send(int peer, std::uint32_t tag, const void* data, std::size_t bytes, Ticket& ticket) override;
  Status recv(int peer, std::uint32_t tag, void* data, std::size_t bytes, Ticket& ticket) override;
  Status progress() override;
  void cancel(Ticket& ticket) override;
  bool peer_is_gone(int peer) const override;
  std::string trouble(int peer) const override;
  void leave(const Departure& why) override;
  Departure culprit() const override { return {lost_one()}; }
  std::uint64_t moved() const override { return moved_; }
  Result<DeviceReach> add_memory(const DeviceMemory& memory) override;
  void remove_memory(const std::byte* begin) override;
  int wake_descriptor() const override { return device_.notices(); }
  bool arm() override;

 private:
  using Clock = std::chrono::steady_clock;

  // What a work request was for, until it completes.
  struct Work {
    // message: its sender's ticket is done already
    enum class Kind : std::uint8_t { message, header, write, probe };
    Kind kind = Kind::header;
    int peer = -1;
    std::int32_t slot = -1;  // a header's that was not inline
    std::uint32_t send = 0;
    std::uint64_t bytes = 0;
    Registrations::Lease lease{};
  };
  // Receives, or slots to send from: memory that stays registered.
  struct Block {
    Pages memory;
    MemoryPtr registered;
  };

  VerbsTransport(Device& device, Datagrams& datagrams, int rank, const Deadlines& deadlines);

  // verbs_transport.cpp: what the caller does, and set-up
  Status learn(const std::vector<std::string>& addresses);
  Status prepare();
  Status prepare_completions(std::size_t reachable);
  Result<Block> allocate(std::size_t slots, const char* what) const;
  Peer& at(int rank) { return *peers_[static_cast<std::size_t>(rank)]; }
  Status check_peer(int peer) const;
  void flush_sends();

  // connections.cpp: coming together, and what becomes known of the device and of peers
  Status begin(Peer& peer);
  Status hear(const Hello& hello);
  Status act(Peer& peer, const Handshake::Next& next, const Hello& hello);
  Status say(Peer& peer, Hello::Kind kind, std::uint32_t gone = 0);
  Status make_queue_pair(Peer& peer);
  Status bring_up(Peer& peer, const Hello& hello);
  Status look_around();
  Status look_at(Peer& peer, Clock::time_point now);
  Status look_at_open(Peer& peer, Clock::time_point now);
  Status probe(Peer& peer);
  Status note(const ibv_async_event& event);
  Status lost(Peer& peer, const std::string& why);
  Status lost_if_left(Peer& peer);
  int lost_one() const;
  Status fail(Status status);
  void tell(const std::vector<Peer*>& peers);
  void break_connection(Peer& peer);

  // messages.cpp: the protocol
  Status move(Peer& peer);
  Status move_answers(Peer& peer);
  Status move_writes(Peer& peer);
  Status move_queue(Peer& peer);
  Status post_header(Peer& peer, Header header, const std::byte* content, bool& posted);
  Status post(Peer& peer, ibv_send_wr& request, const Work& work);
  Status write(Peer& peer, LongSend& send, const Write& granted);
  Status came(Peer& peer, const std::byte* bytes, std::size_t length);
  Status came_message(Peer& peer, const Header& header, const std::byte* content);
  Status came_grant(Peer& peer, const Header& header);
  Status came_content(Peer& peer, const Header& header, const std::byte* content);
  Status came_refusal(Peer& peer, const Header& header);
  bool fits_slot(const Peer& peer, std::uint64_t bytes) const;
  bool is_copied(const Peer& peer, const std::byte* data, std::uint64_t bytes) const;
  Status send_content(Peer& peer, const Write& granted, bool& posted);
  Status written_to(Peer& peer, std::uint32_t receive, std::uint64_t bytes);
  Status give(const Receive& receive, Peer& peer, Arrival& arrival, const std::byte* content);
  Status grant(Peer& peer, LongReceive& receive);
  Status damaged(const Peer& peer, const char* what) const;

  // device_memory.cpp: short messages, between the host's memory and callers' buffers, which may lie on a GPU
  const DeviceMemory* on_device(const std::byte* data) const;
  void take_out(std::byte* to, const std::byte* from, std::size_t bytes) const;
  void put_in(std::byte* to, const std::byte* from, std::size_t bytes) const;

  // completions.cpp: what the device has done
  Status poll_completions();
  Status completed(const ibv_wc& work);
  Status received(const ibv_wc& work);
  Status failed_work(Peer& peer, Work::Kind kind, ibv_wc_status status);
  Status move_starved();
  Status open_receive(std::uint64_t number);

  Device& device_;
  Datagrams& datagrams_;
  const int rank_;
  const Deadlines deadlines_;
  TransportCapabilities capabilities_;

  // In this order, so that queue pairs go before what they use.
  Registrations registrations_;
  std::vector<DeviceMemory> device_memory_;
  CompletionsPtr completions_;
  int completions_room_ = 0;
  int completions_used_ = 0;  // by what may be in flight at once
  SharedReceivesPtr shared_receives_;
  std::size_t receives_room_ = 0;  // in it
  Block send_slots_;
  std::vector<std::int32_t> free_slots_;
  std::vector<int> starved_;     // ranks for whose messages there was none
  std::vector<Block> receives_;  // of kCreditsPerPeer slots each
  std::vector<Work> works_;
  std::vector<std::uint32_t> free_works_;
  std::vector<std::unique_ptr<Peer>>
      peers_;                 // by rank; this one's own and those out of reach are not connected
  std::vector<Peer*> begun_;  // those with a connection, made or being made
  std::unordered_map<std::uint32_t, int> rank_of_queue_pair_;

  std::uint64_t completed_ = 0;
  std::uint64_t moved_ = 0;  // of those what belongs to messages
  unsigned rounds_ = 0;
  unsigned looks_ = 0;
  Clock::time_point looked_ = Clock::now();  // at the clock, and at the handshakes by it
  unsigned connecting_ = 0;
  Clock::time_point port_down_since_;
  bool port_down_ = false;
  Status failed_;
};

}  // namespace heddle::verbs
