// Status and Result: how every function of heddle that can fail says so. No exception crosses a public
// boundary.
//
// Two groups of errors, told apart by their code: what the caller or the environment did (`invalid_argument`,
// `unsupported`, `out_of_memory`, `system`, `timeout`, `peer_failed`, `capacity`) and what heddle itself
// broke (`internal`). The first place that notices writes the message; everyone above passes it on.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace heddle {

enum class Code : int {
  ok = 0,
  invalid_argument,  // the caller passed something that cannot be served
  unsupported,       // valid, but not by this build, machine or transport
  out_of_memory,     // memory, /dev/shm or another bounded resource is exhausted
  system,            // a system call failed; the message has its name and errno
  timeout,           // a configured deadline passed; the message names who is missing
  peer_failed,       // another rank died or reported a failure; the message names it
  internal,          // a broken invariant: a defect in heddle
  capacity,          // the caller's arrays are too small for the result; the message says how large it is
};

const char* code_name(Code code);

// Success is a null pointer: returning and testing it costs one register, so the hot path may use it freely.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : detail_(std::make_unique<Detail>(code, std::move(message))) {}
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;
  Status(const Status& other) : detail_(other.detail_ ? std::make_unique<Detail>(*other.detail_) : nullptr) {}
  Status& operator=(const Status& other) {
    if (this != &other) *this = Status(other);
    return *this;
  }
  ~Status() = default;

  bool ok() const { return detail_ == nullptr; }
  Code code() const { return detail_ ? detail_->code : Code::ok; }
  const std::string& message() const;

  // Of a failure that another rank had before: that rank knows better why.
  Status at_second_hand() && {
    if (detail_) detail_->second_hand = true;
    return std::move(*this);
  }
  bool is_at_second_hand() const { return detail_ && detail_->second_hand; }

 private:
  struct Detail {
    Detail(Code why, std::string text) : code(why), message(std::move(text)) {}

    Code code;
    std::string message;
    bool second_hand = false;
  };
  std::unique_ptr<Detail> detail_;
};

// A system call's failure: "<what>: <strerror(err)> (errno <err>)". ENOMEM and ENOSPC become out_of_memory.
Status system_error(const std::string& what, int err);

// A value or the reason why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace heddle

// Returns the status of `expr` from the enclosing function when it is an error.
#define HEDDLE_TRY(expr)                                                                                \
  do {                                                                                                  \
    if (::heddle::Status heddle_try_status = (expr); !heddle_try_status.ok()) return heddle_try_status; \
  } while (false)
