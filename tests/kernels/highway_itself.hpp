// What Highway's own library answers, in a library of its own so that its functions and ours stay apart.
#pragma once

#include <cstdint>

extern "C" {
std::int64_t highways_supported_targets();
const void* highways_chosen_target();
}
