#include "transports/ucx/ucx_network.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/descriptors.hpp"
#include "transports/host_name.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace heddle {
namespace {

// The host's name is for messages to people.
std::string pack_address(const UcxAddress& address) {
  return address.host + '\0' + address.worker;
}

Result<UcxAddress> unpack_address(const std::string& bytes) {
  const std::size_t end = bytes.find('\0');
  if (end == std::string::npos || end + 1 == bytes.size())
    return Status(Code::internal, "a rank's UCX address is damaged");
  return UcxAddress{bytes.substr(0, end), bytes.substr(end + 1)};
}

// Shared by the network and its transport, of which either may be asked how it goes.
class UcxNetwork final : public Network {
 public:
  explicit UcxNetwork(std::unique_ptr<UcxWorker> worker)
      : worker_(std::move(worker)), address_(pack_address({host_name(), worker_->address()})) {}

  const std::string& address() const override { return address_; }
  std::string describe() const override;
  Result<std::unique_ptr<Transport>> connect(int rank, std::vector<std::string> addresses) override;

 private:
  std::unique_ptr<UcxWorker> worker_;
  std::string address_;
  const UcxTransport* transport_ = nullptr;  // goes before this does
};

std::string UcxNetwork::describe() const {
  const Descriptors descriptors = count_descriptors();
  const UcxFootprint footprint = transport_ != nullptr ? transport_->footprint() : UcxFootprint();
  return fmt::format("UCX {}{}{}, {} endpoint{}, {} of {} file descriptors", ucx_version(),
                     footprint.lanes.empty() ? "" : " over ", footprint.lanes, footprint.endpoints,
                     footprint.endpoints == 1 ? "" : "s", descriptors.open, descriptors.limit);
}

Result<std::unique_ptr<Transport>> UcxNetwork::connect(int rank, std::vector<std::string> addresses) {
  std::vector<UcxAddress> unpacked(addresses.size());
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    if (addresses[i].empty() || i == static_cast<std::size_t>(rank)) continue;
    Result<UcxAddress> one = unpack_address(addresses[i]);
    HEDDLE_TRY(one.status());
    unpacked[i] = std::move(one).value();
  }
  Result<std::unique_ptr<UcxTransport>> made = make_ucx_transport(*worker_, rank, std::move(unpacked));
  HEDDLE_TRY(made.status());
  transport_ = made.value().get();
  return std::unique_ptr<Transport>(std::move(made).value());
}

}  // namespace

Result<std::unique_ptr<Network>> open_ucx_network(const NetworkOptions&) {
  Result<std::shared_ptr<UcxContext>> context = UcxContext::create();
  HEDDLE_TRY(context.status());
  Result<std::unique_ptr<UcxWorker>> worker = UcxWorker::create(std::move(context).value());
  HEDDLE_TRY(worker.status());
  return std::unique_ptr<Network>(std::make_unique<UcxNetwork>(std::move(worker).value()));
}

}  // namespace heddle
