#include "interpose/backend/finalize_together.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>

namespace heddle::backend {
namespace {

// What follows `label` in its line, without leading blanks; empty when there is no such line.
std::string_view value_of(std::string_view text, std::string_view label) {
  const std::size_t at = text.find(label);
  if (at == std::string_view::npos) return {};
  std::string_view rest = text.substr(at + label.size());
  rest = rest.substr(0, rest.find('\n'));
  return rest.substr(std::min(rest.find_first_not_of(" \t"), rest.size()));
}

int read_number(std::string_view* text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc()) return -1;
  text->remove_prefix(static_cast<std::size_t>(end - text->data()));
  return number;
}

}  // namespace

bool may_hang_in_finalize(std::string_view library_version) {
  std::string_view version = value_of(library_version, "MPICH Version:");
  const int major = read_number(&version);
  if (!version.empty()) version.remove_prefix(1);  // the dot
  const int minor = read_number(&version);
  if (major < 0 || minor < 0 || major > 4 || (major == 4 && minor >= 2)) return false;
  // Other devices close otherwise; other process managers speak otherwise.
  const std::string_view configured = value_of(library_version, "MPICH configure:");
  return value_of(library_version, "MPICH Device:").starts_with("ch4:ucx") &&
         (configured.find("--with-pmi=") == std::string_view::npos ||
          configured.find("--with-pmi=simple") != std::string_view::npos) &&
         configured.find("--with-pmilib=") == std::string_view::npos;
}

Status process_manager_barrier(int fd) {
  constexpr std::string_view kHere = "cmd=barrier_in\n";
  constexpr std::string_view kAllHere = "cmd=barrier_out";
  constexpr std::size_t kLongest = 1024;
  const auto broken = [&](const char* what) {
    return Status(Code::system, std::string("the process manager's socket PMI_FD=") + std::to_string(fd) +
                                    ": " + what + ": " + std::strerror(errno));
  };
  for (std::size_t sent = 0; sent < kHere.size();) {
    const ssize_t rc = ::send(fd, kHere.data() + sent, kHere.size() - sent, MSG_NOSIGNAL);
    if (rc < 0 && errno != EINTR) return broken("cannot be written");
    if (rc > 0) sent += static_cast<std::size_t>(rc);
  }
  std::string answer;
  // One byte at a time: what follows the line is not ours.
  for (char c = 0; answer.size() < kLongest;) {
    const ssize_t rc = ::recv(fd, &c, 1, 0);
    if (rc < 0 && errno == EINTR) continue;
    if (rc < 0) return broken("cannot be read");
    if (rc == 0) return Status(Code::peer_failed, "the process manager has closed PMI_FD");
    if (c == '\n') break;
    answer += c;
  }
  if (!std::string_view(answer).starts_with(kAllHere)) {
    return Status(Code::system,
                  "the process manager answered '" + answer + "' instead of '" + std::string(kAllHere) + "'");
  }
  return Status();
}

Status finalize_together(std::string_view library_version, const std::function<bool(bool mine)>& everybody) {
  if (!may_hang_in_finalize(library_version)) return {};
  const char* named = std::getenv("PMI_FD");
  const int fd = named != nullptr ? std::atoi(named) : -1;
  // All or none. In this a rank still drives UCX for those who are late; after it nobody may.
  if (!everybody(fd >= 0)) return {};
  return process_manager_barrier(fd);
}

}  // namespace heddle::backend
