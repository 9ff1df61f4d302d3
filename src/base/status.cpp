#include "base/status.hpp"

#include <cerrno>
#include <cstring>

namespace heddle {

const char* code_name(Code code) {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::invalid_argument:
      return "invalid argument";
    case Code::unsupported:
      return "unsupported";
    case Code::out_of_memory:
      return "out of memory";
    case Code::system:
      return "system error";
    case Code::timeout:
      return "timeout";
    case Code::peer_failed:
      return "peer failed";
    case Code::internal:
      return "internal error";
    case Code::capacity:
      return "capacity";
  }
  return "unknown code";
}

const std::string& Status::message() const {
  static const std::string& kNone = *new std::string;  // never destroyed: see catalog()
  return detail_ ? detail_->message : kNone;
}

Status system_error(const std::string& what, int err) {
  const Code code =
      (err == ENOMEM || err == ENOSPC || err == EMFILE || err == ENFILE) ? Code::out_of_memory : Code::system;
  return Status(code, what + ": " + std::strerror(err) + " (errno " + std::to_string(err) + ")");
}

}  // namespace heddle
