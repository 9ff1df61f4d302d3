#include "base/whole_file.hpp"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace heddle {
namespace {

std::string part_of(const std::string& path) {
  return path + "." + std::to_string(getpid());
}

Status write_part(const std::string& path, std::string_view text) {
  std::error_code error;
  const std::filesystem::file_status there = std::filesystem::status(path, error);
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there))
    return Status(Code::invalid_argument, path + " is something else than a file");
  const std::string part = part_of(path);
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

Status can_replace_file(const std::string& path) {
  HEDDLE_TRY(write_part(path, ""));
  std::error_code ignored;
  std::filesystem::remove(part_of(path), ignored);
  return {};
}

Status replace_file(const std::string& path, std::string_view text) {
  HEDDLE_TRY(write_part(path, text));
  std::error_code error;
  std::filesystem::rename(part_of(path), path, error);
  if (!error) return {};
  const Status status(Code::system, path + " cannot be replaced: " + error.message());
  std::filesystem::remove(part_of(path), error);
  return status;
}

}  // namespace heddle
