#include "transports/verbs/network.hpp"

#include <fmt/format.h>

#include <utility>

#include "transports/verbs/datagrams.hpp"
#include "transports/verbs/device.hpp"
#include "transports/verbs/verbs_transport.hpp"

namespace heddle::verbs {
namespace {

class VerbsNetwork final : public Network {
 public:
  VerbsNetwork(std::unique_ptr<Device> device, std::unique_ptr<Datagrams> datagrams,
               const Deadlines& deadlines)
      : device_(std::move(device)),
        datagrams_(std::move(datagrams)),
        address_(encode(datagrams_->address())),
        deadlines_(deadlines) {}

  const std::string& address() const override { return address_; }

  std::string describe() const override {
    return fmt::format("{}, {} KiB for each connected peer", device_->describe(), kMemoryPerPeer >> 10);
  }

  Result<std::unique_ptr<Transport>> connect(int rank, std::vector<std::string> addresses) override {
    return VerbsTransport::make(*device_, *datagrams_, rank, addresses, deadlines_);
  }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Datagrams> datagrams_;
  std::string address_;
  Deadlines deadlines_;
};

}  // namespace

Result<std::unique_ptr<Network>> open_network(const NetworkOptions& options) {
  Result<std::unique_ptr<Device>> device = Device::open(options);
  HEDDLE_TRY(device.status());
  Result<std::unique_ptr<Datagrams>> datagrams = Datagrams::open(*device.value());
  HEDDLE_TRY(datagrams.status());
  return std::unique_ptr<Network>(
      std::make_unique<VerbsNetwork>(std::move(device).value(), std::move(datagrams).value(),
                                     Deadlines{options.timeout, options.verbs_timeout}));
}

}  // namespace heddle::verbs
