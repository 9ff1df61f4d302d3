// Short messages to any rank without a connection, which may get lost: what connections are made with.
#pragma once

#include <memory>
#include <vector>

#include "transports/verbs/device.hpp"
#include "transports/verbs/pages.hpp"

namespace heddle::verbs {

class Datagrams {
 public:
  static Result<std::unique_ptr<Datagrams>> open(Device& device);

  const Address& address() const { return address_; }
  ibv_cq* completions() const { return completions_.get(); }

  bool may_send() const { return !free_.empty(); }
  // At once or never: where nothing is free to send with it is lost, like one that the network loses. An
  // error is about this device.
  Status send(const Address& to, RoutePtr& route, const Hello& hello);

  // Calls `came` for each that is well formed.
  template <typename Came>
  Status poll(Came came) {
    ibv_wc work;
    for (int n = ibv_poll_cq(completions_.get(), 1, &work); n != 0;
         n = ibv_poll_cq(completions_.get(), 1, &work)) {
      if (n < 0) return Status(Code::system, device_.name() + ": ibv_poll_cq failed");
      std::optional<Hello> hello;
      HEDDLE_TRY(take(work, hello));
      if (hello) came(*hello);
    }
    return {};
  }

 private:
  explicit Datagrams(Device& device) : device_(device) {}
  Status prepare();
  Status start();
  Status receive(std::uint32_t slot);
  Status take(const ibv_wc& work, std::optional<Hello>& hello);

  Device& device_;
  Address address_;
  Pages memory_;
  MemoryPtr registered_;
  CompletionsPtr completions_;
  QueuePairPtr queue_pair_;
  std::vector<std::uint32_t> free_;  // slots to send from
};

}  // namespace heddle::verbs
