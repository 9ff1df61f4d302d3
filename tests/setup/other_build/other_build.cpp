// A network of the same version, but of a build with other headers.
#include "heddle/heddle.h"
#include "transports/network.hpp"

namespace {

heddle::Result<std::unique_ptr<heddle::Network>> open_none(const heddle::NetworkOptions& /*options*/) {
  return heddle::Status(heddle::Code::internal, "it was opened");
}

}  // namespace

extern "C" {
[[gnu::visibility("default")]] extern const heddle::NetworkModule heddle_network_module;
const heddle::NetworkModule heddle_network_module = {HEDDLE_VERSION_STRING " 01234567", open_none};
}
