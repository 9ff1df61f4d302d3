#include "transports/mpi/mpi_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

namespace heddle {
namespace {

static_assert(sizeof(Ticket::words) >= HEDDLE_P2P_REQUEST_BYTES);

// MPI guarantees tags up to 32767. A tag comes back after as many messages between two ranks have been
// opened, and matching is in order, so a wrapped tag can only meet its own kind.
constexpr std::uint32_t kTags = 32768;

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(const heddle_p2p& p2p) : p2p_(p2p) {
    capabilities_.name = "mpi";
    capabilities_.cost = {2000, 0.15};
  }

  const TransportCapabilities& capabilities() const override { return capabilities_; }

  Status send(int peer, std::uint32_t tag, const void* data, std::size_t bytes, Ticket& ticket) override {
    // Known before it is open: without memory to note it in there would be no taking it back.
    open_.push_back({&ticket, peer, bytes, true});
    if (p2p_.send(data, bytes, peer, static_cast<int>(tag % kTags), ticket.words, p2p_.context) == 0)
      return {};
    open_.pop_back();
    return failed("sending to", peer);
  }

  Status recv(int peer, std::uint32_t tag, void* data, std::size_t bytes, Ticket& ticket) override {
    open_.push_back({&ticket, peer, bytes, false});
    if (p2p_.recv(data, bytes, peer, static_cast<int>(tag % kTags), ticket.words, p2p_.context) == 0)
      return {};
    open_.pop_back();
    return failed("receiving from", peer);
  }

  Status progress() override {
    for (std::size_t i = 0; i < open_.size();) {
      int done = 0;
      Message& message = open_[i];
      if (const int error = p2p_.test(message.ticket->words, &done, p2p_.context); error != 0)
        return message.failed(error);
      if (done == 0) {
        ++i;
        continue;
      }
      message.ticket->done = true;
      ++moved_;
      message = open_.back();
      open_.pop_back();
    }
    return {};
  }

  void cancel(Ticket& ticket) override {
    const auto found =
        std::find_if(open_.begin(), open_.end(), [&](const Message& each) { return each.ticket == &ticket; });
    if (found == open_.end()) return;
    if (p2p_.cancel(ticket.words, p2p_.context) != 0 && held_peer_ < 0) {
      held_peer_ = found->peer;
      held_is_sent_ = found->is_sent;
    }
    open_.erase(found);
  }

  std::string trouble(int peer) const override {
    if (peer != held_peer_) return "";
    return fmt::format(
        "the host MPI has not let go of a message {} rank {} that was given up: it may still {} its buffer",
        held_is_sent_ ? "to" : "from", peer, held_is_sent_ ? "read" : "write to");
  }

  bool peer_is_gone(int) const override { return false; }
  // Whole messages: of parts of one MPI tells nothing.
  std::uint64_t moved() const override { return moved_; }

 private:
  struct Message {
    Ticket* ticket;
    int peer;
    std::size_t bytes;
    bool is_sent;

    Status failed(int error) const {
      return Status(
          Code::peer_failed,
          fmt::format("the host MPI reported an error (class {}) about a message of {} bytes {} rank {}{}",
                      error, bytes, is_sent ? "to" : "from", peer,
                      is_sent ? "" : "; has that called a collective with another size?"));
    }
  };

  static Status failed(const char* what, int peer) {
    return Status(Code::peer_failed,
                  std::string("the host MPI reported an error ") + what + " rank " + std::to_string(peer));
  }

  heddle_p2p p2p_;
  std::vector<Message> open_;
  std::uint64_t moved_ = 0;
  // Of the first message that was given up and that the lender may go on with.
  int held_peer_ = -1;
  bool held_is_sent_ = false;
  TransportCapabilities capabilities_;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(const heddle_p2p& p2p) {
  return std::make_unique<MpiTransport>(p2p);
}

}  // namespace heddle
