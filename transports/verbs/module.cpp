// What src/setup/network_module.cpp looks for in this module.
#include "heddle/heddle.h"
#include "transports/verbs/network.hpp"

extern "C" {
[[gnu::visibility("default")]] extern const heddle::NetworkModule heddle_network_module;
const heddle::NetworkModule heddle_network_module = {HEDDLE_NETWORK_INTERFACE, heddle::verbs::open_network};
}
