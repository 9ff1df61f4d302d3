#include "base/whole_file.hpp"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace heddle {
namespace {

std::uint64_t random_number() {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number)
    number = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  return number;
}

Status write_part(const std::string& path, const std::string& part, std::string_view text) {
  std::error_code error;
  const std::filesystem::file_status there = std::filesystem::status(path, error);
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there))
    return Status(Code::invalid_argument, path + " is something else than a file");
  errno = 0;
  std::ofstream file(part, std::ios::binary);
  file << text;
  file.close();
  if (file) return {};
  const Status status = system_error(path + " cannot be written", errno);
  std::filesystem::remove(part, error);
  return status;
}

}  // namespace

std::string name_beside(const std::string& path) {
  // Containers count their processes each for itself.
  static std::atomic<std::uint64_t> last{random_number()};
  return fmt::format("{}.{}.{:x}", path, getpid(), ++last);
}

Status can_replace_file(const std::string& path) {
  const std::string part = name_beside(path);
  HEDDLE_TRY(write_part(path, part, ""));
  std::error_code ignored;
  std::filesystem::remove(part, ignored);
  return {};
}

Status replace_file(const std::string& path, std::string_view text) {
  const std::string part = name_beside(path);
  HEDDLE_TRY(write_part(path, part, text));
  std::error_code error;
  std::filesystem::rename(part, path, error);
  if (!error) return {};
  const Status status(Code::system, path + " cannot be replaced: " + error.message());
  std::filesystem::remove(part, error);
  return status;
}

}  // namespace heddle
