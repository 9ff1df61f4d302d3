// Files that other processes see whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.hpp"

namespace heddle {

// What a file holds. A path to anything else (a folder, a pipe that may never end) is refused, and so is more
// than `most` bytes; the status names `path`.
Result<std::string> read_file(const std::string& path, std::size_t most = SIZE_MAX);

// A name for a file beside `path`, which no other process takes, nor another thread, on whatever machine they
// see that folder.
std::string name_beside(const std::string& path);

// Whether replace_file() could write `path` now; nothing stays behind. The status names what is in the way.
Status can_replace_file(const std::string& path);

enum class Kept : std::uint8_t {
  until_power_cuts,    // which may leave less than all of it
  through_power_cuts,  // at the cost of waiting for the disk
};

// Writes `text` beside the file that `path` leads to, through symbolic links, and moves it there. What was
// there before stays when that fails, and the status names `path`. A path that is something else than a file
// (a folder, a device) is refused.
Status replace_file(const std::string& path, std::string_view text, Kept kept = Kept::until_power_cuts);

}  // namespace heddle
