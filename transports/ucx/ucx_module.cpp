// What libheddle_network_ucx.so exports.
#include "heddle/heddle.h"
#include "transports/ucx/ucx_network.hpp"

extern "C" [[gnu::visibility("default")]] const heddle::NetworkModule heddle_network_module;
const heddle::NetworkModule heddle_network_module = {HEDDLE_NETWORK_INTERFACE, heddle::open_ucx_network};
