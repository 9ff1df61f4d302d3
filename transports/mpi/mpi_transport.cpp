#include "transports/mpi/mpi_transport.hpp"

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
    if (p2p_.send(data, bytes, peer, static_cast<int>(tag % kTags), ticket.words, p2p_.context) != 0) {
      return failed("sending to", peer);
    }
    open_.push_back(&ticket);
    return {};
  }

  Status recv(int peer, std::uint32_t tag, void* data, std::size_t bytes, Ticket& ticket) override {
    if (p2p_.recv(data, bytes, peer, static_cast<int>(tag % kTags), ticket.words, p2p_.context) != 0) {
      return failed("receiving from", peer);
    }
    open_.push_back(&ticket);
    return {};
  }

  Status progress() override {
    for (std::size_t i = 0; i < open_.size();) {
      int done = 0;
      if (p2p_.test(open_[i]->words, &done, p2p_.context) != 0) {
        return Status(Code::peer_failed, "the host MPI reported an error while completing a message");
      }
      if (done == 0) {
        ++i;
        continue;
      }
      open_[i]->done = true;
      open_[i] = open_.back();
      open_.pop_back();
    }
    return {};
  }

  void cancel(Ticket& ticket) override {
    if (std::erase(open_, &ticket) > 0) p2p_.cancel(ticket.words, p2p_.context);
  }

  bool peer_is_gone(int) const override { return false; }

 private:
  static Status failed(const char* what, int peer) {
    return Status(Code::peer_failed,
                  std::string("the host MPI reported an error ") + what + " rank " + std::to_string(peer));
  }

  heddle_p2p p2p_;
  std::vector<Ticket*> open_;
  TransportCapabilities capabilities_;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(const heddle_p2p& p2p) {
  return std::make_unique<MpiTransport>(p2p);
}

}  // namespace heddle
