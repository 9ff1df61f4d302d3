// A double of a network whose device reads and writes GPUs' memory, as a module in the place of verbs: TCP,
// and memory of the double of CUDA's driver, whose dmabufs are files that hold it. What such a device does
// goes past the driver, as here: it finds what is there at that time, whatever streams have still to do.
//
// NETWORK_DOUBLE says what is wrong with it: "refuses" takes no memory, "slow" reads it four times more
// slowly than the host's, "unmeasured" does not know how fast it is.
#include <sys/mman.h>

#include <cstdlib>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "heddle/heddle.h"
#include "transports/network.hpp"
#include "transports/tcp/tcp_network.hpp"

namespace heddle {
namespace {

bool is_wrong(const char* how) {
  const char* const what = std::getenv("NETWORK_DOUBLE");
  return what != nullptr && std::string(what) == how;
}

class DoubleTransport final : public Transport {
 public:
  explicit DoubleTransport(std::unique_ptr<Transport> tcp) : tcp_(std::move(tcp)) {}
  ~DoubleTransport() override {
    for (const Window& window : windows_)
      munmap(window.memory, window.of.bytes);
  }

  const TransportCapabilities& capabilities() const override { return tcp_->capabilities(); }
  Result<DeviceReach> add_memory(const DeviceMemory& memory) override {
    if (is_wrong("refuses")) return Status(Code::unsupported, "the double takes no memory");
    if (memory.dmabuf < 0) return Status(Code::unsupported, "the double takes dmabufs alone");
    void* const at = mmap(nullptr, memory.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.dmabuf, 0);
    if (at == MAP_FAILED) return Status(Code::unsupported, "no mapping of the dmabuf");
    windows_.push_back({memory, static_cast<std::byte*>(at)});
    if (is_wrong("unmeasured")) return DeviceReach{};
    return DeviceReach{1, is_wrong("slow") ? 4.0 : 1.0, 1};
  }
  void remove_memory(const std::byte* begin) override {
    for (auto at = windows_.begin(); at != windows_.end(); ++at) {
      if (at->of.begin != begin) continue;
      munmap(at->memory, at->of.bytes);
      windows_.erase(at);
      return;
    }
  }

  Status send(int peer, std::uint32_t tag, const void* data, std::size_t bytes, Ticket& ticket) override {
    const auto* const from = static_cast<const std::byte*>(data);
    const Window* const window = window_of(from);
    if (window == nullptr) return tcp_->send(peer, tag, data, bytes, ticket);
    if (bytes > kShort)
      return tcp_->send(peer, tag, window->memory + (from - window->of.begin), bytes, ticket);
    Copied& copied = copied_.emplace_back();
    copied.content.resize(bytes);
    copied.ticket = &ticket;
    window->of.access->read(copied.content.data(), from, bytes);
    return tcp_->send(peer, tag, copied.content.data(), bytes, copied.own);
  }
  Status recv(int peer, std::uint32_t tag, void* data, std::size_t bytes, Ticket& ticket) override {
    auto* const to = static_cast<std::byte*>(data);
    const Window* const window = window_of(to);
    if (window == nullptr) return tcp_->recv(peer, tag, data, bytes, ticket);
    if (bytes > kShort) return tcp_->recv(peer, tag, window->memory + (to - window->of.begin), bytes, ticket);
    Copied& copied = copied_.emplace_back();
    copied.content.resize(bytes);
    copied.ticket = &ticket;
    copied.to = to;
    copied.access = window->of.access;
    return tcp_->recv(peer, tag, copied.content.data(), bytes, copied.own);
  }

  Status progress() override {
    const Status status = tcp_->progress();
    for (auto at = copied_.begin(); at != copied_.end();) {
      if (!at->own.done) {
        ++at;
        continue;
      }
      if (at->to != nullptr) at->access->write(at->to, at->content.data(), at->content.size());
      at->ticket->done = true;
      at = copied_.erase(at);
    }
    return status;
  }
  void cancel(Ticket& ticket) override {
    for (auto at = copied_.begin(); at != copied_.end(); ++at) {
      if (at->ticket != &ticket) continue;
      tcp_->cancel(at->own);
      copied_.erase(at);
      return;
    }
    tcp_->cancel(ticket);
  }
  std::size_t unsettled_bytes() const override { return tcp_->unsettled_bytes(); }
  bool settled() override { return tcp_->settled(); }
  bool peer_is_gone(int peer) const override { return tcp_->peer_is_gone(peer); }

 private:
  static constexpr std::size_t kShort = 8192;
  struct Window {
    DeviceMemory of;
    std::byte* memory;  // the device's view of it
  };
  // A short message, which the host copies.
  struct Copied {
    Ticket own;
    Ticket* ticket = nullptr;
    std::vector<std::byte> content;
    std::byte* to = nullptr;  // null: it is sent
    DeviceAccess* access = nullptr;
  };
  const Window* window_of(const std::byte* data) const {
    for (const Window& window : windows_) {
      if (data >= window.of.begin && data < window.of.begin + window.of.bytes) return &window;
    }
    return nullptr;
  }

  std::unique_ptr<Transport> tcp_;
  std::vector<Window> windows_;
  std::list<Copied> copied_;
};

class DoubleNetwork final : public Network {
 public:
  explicit DoubleNetwork(std::unique_ptr<Network> tcp) : tcp_(std::move(tcp)) {}
  const std::string& address() const override { return tcp_->address(); }
  std::string describe() const override { return "a double over " + tcp_->describe(); }
  Result<std::unique_ptr<Transport>> connect(int rank, std::vector<std::string> addresses) override {
    Result<std::unique_ptr<Transport>> tcp = tcp_->connect(rank, std::move(addresses));
    HEDDLE_TRY(tcp.status());
    return std::unique_ptr<Transport>(std::make_unique<DoubleTransport>(std::move(tcp).value()));
  }

 private:
  std::unique_ptr<Network> tcp_;
};

Result<std::unique_ptr<Network>> open_double(const NetworkOptions& options) {
  Result<std::unique_ptr<Network>> tcp = open_tcp_network(options);
  HEDDLE_TRY(tcp.status());
  return std::unique_ptr<Network>(std::make_unique<DoubleNetwork>(std::move(tcp).value()));
}

}  // namespace
}  // namespace heddle

extern "C" {
[[gnu::visibility("default")]] extern const heddle::NetworkModule heddle_network_module;
const heddle::NetworkModule heddle_network_module = {HEDDLE_NETWORK_INTERFACE, heddle::open_double};
}
