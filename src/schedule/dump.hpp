// A schedule as text, one step a line: for people, logs and golden tests.
#pragma once

#include <string>

#include "schedule/schedule.hpp"

namespace heddle {

std::string dump(const Schedule& schedule);
const char* slot_name(Slot slot);

}  // namespace heddle
