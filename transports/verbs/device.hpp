// One port of one device, opened, and the resources made from it as values that free themselves.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>

#include "base/status.hpp"
#include "transports/network.hpp"
#include "transports/transport.hpp"
#include "transports/verbs/gid.hpp"
#include "transports/verbs/registration.hpp"
#include "transports/verbs/wire.hpp"

namespace heddle::verbs {

template <auto free>
struct Freer {
  template <typename T>
  void operator()(T* resource) const {
    // Fails only where something made from it is still there, and then the process's end frees it.
    static_cast<void>(free(resource));
  }
};
using ContextPtr = std::unique_ptr<ibv_context, Freer<ibv_close_device>>;
using DomainPtr = std::unique_ptr<ibv_pd, Freer<ibv_dealloc_pd>>;
using MemoryPtr = std::unique_ptr<ibv_mr, Freer<ibv_dereg_mr>>;
using CompletionsPtr = std::unique_ptr<ibv_cq, Freer<ibv_destroy_cq>>;
using ChannelPtr = std::unique_ptr<ibv_comp_channel, Freer<ibv_destroy_comp_channel>>;
using SharedReceivesPtr = std::unique_ptr<ibv_srq, Freer<ibv_destroy_srq>>;
using QueuePairPtr = std::unique_ptr<ibv_qp, Freer<ibv_destroy_qp>>;
using RoutePtr = std::unique_ptr<ibv_ah, Freer<ibv_destroy_ah>>;

class Device final : public MemoryPinner {
 public:
  // No device named: the fastest active port; GID -1: the best. `unsupported` says what is missing.
  static Result<std::unique_ptr<Device>> open(const NetworkOptions& options);

  ibv_context* context() const { return context_.get(); }
  ibv_pd* domain() const { return domain_.get(); }
  const ibv_device_attr& limits() const { return limits_; }
  std::uint8_t port() const { return port_; }
  std::uint8_t mtu() const { return static_cast<std::uint8_t>(port_state_.active_mtu); }
  std::uint16_t lid() const { return port_state_.lid; }
  const GidEntry& gid() const { return gid_; }
  std::uint16_t partition() const { return partition_; }  // its index in the port's table
  const std::string& name() const { return name_; }       // "mlx5_0 port 1"
  std::string describe() const;

  // How a packet gets from here to there; to this port itself.
  ibv_ah_attr route_to(const Address& peer) const;
  ibv_ah_attr route_to_itself() const;

  Result<Pinned> pin(const void* data, std::size_t bytes, bool writable) override;
  void unpin(void* handle) override;
  bool follows_page_tables() const override { return on_demand_; }

  // A GPU's, for both directions: by its dmabuf, or by its addresses, which a module of the kernel
  // (nvidia_peermem) makes known. `unsupported`: by neither.
  Result<Pinned> pin(const DeviceMemory& memory);

  // A queue whose completions the device can give notice of.
  Result<CompletionsPtr> make_completions(int room);
  // Readable when there is a notice.
  int notices() const { return channel_->fd; }
  // Forgets the notices that came, and asks for one of the next completion in each of the queues.
  Status ask_for_notice(std::initializer_list<ibv_cq*> queues);

  // Asked of the device now.
  bool port_is_up() const;
  // Calls `seen` for each event that came since; never waits.
  void events(const std::function<void(const ibv_async_event&)>& seen);

 private:
  Device() = default;
  Status use(ibv_device* device, const DeviceName& wanted);
  Status find_port(int wanted);
  Status find_gid(int wanted);
  Status find_partition(int wanted);
  Status prepare(const NetworkOptions& options);

  ContextPtr context_;
  ChannelPtr channel_;
  DomainPtr domain_;
  ibv_device_attr limits_{};
  ibv_port_attr port_state_{};
  std::uint8_t port_ = 0;
  GidEntry gid_;
  std::uint16_t partition_ = 0;
  std::uint8_t traffic_class_ = 0;
  std::uint8_t service_level_ = 0;
  bool on_demand_ = false;
  std::string name_;
  std::string partition_text_;  // of describe(), where one was asked for
};

// Of all that fails for lack of pinned memory: what to do about it.
Status registration_error(const std::string& what, int err);

}  // namespace heddle::verbs
