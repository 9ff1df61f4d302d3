#include "heddle_tune/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "heddle_tune/report.hpp"

namespace heddle::tune {
namespace {

// Often enough to be seen moving, too seldom to disturb what is measured.
constexpr std::chrono::milliseconds kOnTerminal{250};
constexpr std::chrono::milliseconds kElsewhere{5000};

}  // namespace

ProgressLine::ProgressLine()
    : terminal_(isatty(STDERR_FILENO) == 1),
      next_(std::chrono::steady_clock::now() + (terminal_ ? kOnTerminal : kElsewhere)) {}

ProgressLine::~ProgressLine() {
  if (terminal_ && shown_) std::fputs("\r\033[K", stderr);
}

void ProgressLine::show(const TrialProgress& progress) {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + (terminal_ ? kOnTerminal : kElsewhere);
  shown_ = true;
  const std::string line =
      fmt::format("{} of {} done, {:.0f} s of at most {:.0f} s; {} {}: {}", progress.done, progress.total,
                  progress.spent_s, progress.budget_s, collective_name(progress.collective),
                  bytes_text(progress.bytes), choice_text(progress.choice));
  std::fputs(terminal_ ? ("\r" + line + "\033[K").c_str() : ("heddle-tune: " + line + "\n").c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace heddle::tune
