#include "comm/plan_cache.hpp"

#include <fmt/format.h>

namespace heddle {
namespace {

const char* reason(ChosenBy by) {
  switch (by) {
    case ChosenBy::force:
      return "HEDDLE_ALGORITHM";
    case ChosenBy::tuning:
      return "tuning file";
    case ChosenBy::measuring:
      return "measuring";
    case ChosenBy::price:
      return "price";
  }
  return "";
}

}  // namespace

Result<const Selection*> PlanCache::selection(Collective collective, std::size_t bytes, bool messages_only) {
  std::unique_ptr<Selection>& entry = selections_[index(collective, bytes, messages_only)];
  if (!entry) {
    Result<Selection> chosen = selector_.select(collective, middle_of_class(bytes), messages_only);
    if (!chosen.ok()) return chosen.status();
    entry = std::make_unique<Selection>(chosen.value());
    report(collective, bytes == 0 ? 0 : std::bit_ceil(bytes + 1) - 1, *entry, messages_only);
  }
  return static_cast<const Selection*>(entry.get());
}

void PlanCache::report(Collective collective, std::size_t bytes, const Selection& selection,
                       bool messages_only) const {
  if (rank_ != 0 || !log_.wants(LogLevel::info)) return;
  const Choice& choice = selection.choice;
  const std::string leaders =
      choice.shape.leaders == 1 ? std::string() : fmt::format(", leaders {}", choice.shape.leaders);
  const std::string up_to = collective == Collective::barrier ? std::string()
                            : collective == Collective::allgather
                                ? fmt::format(" up to {} bytes of each rank", bytes)
                                : fmt::format(" up to {} bytes", bytes);
  std::string text =
      fmt::format("{}{}{}: {} (radix {}, chunks {}{}) by {}", messages_only ? "non-blocking " : "",
                  collective_name(collective), up_to, choice.algorithm->name, choice.shape.radix,
                  choice.shape.chunks, leaders, reason(selection.by));
  if (selection.by == ChosenBy::price) text += fmt::format(", {:.1f} us", choice.price_ns / 1e3);
  if (selection.runner_up != nullptr) {
    text += fmt::format("; next {} at {:.1f} us", selection.runner_up->name, selection.runner_up_ns / 1e3);
  }
  log_.info(text);
}

std::shared_ptr<const Schedule> PlanCache::schedule(const Choice& choice, std::int32_t root) {
  const Key key(choice.algorithm, root, choice.shape.radix, choice.shape.chunks, choice.shape.leaders);
  return schedules_.get(key, [&] { return std::make_shared<const Schedule>(build(choice, root)); });
}

Schedule PlanCache::build(const Choice& choice, std::int32_t root) const {
  Shape shape = choice.shape;
  shape.root = root;
  Schedule schedule = choice.algorithm->build(topology_, rank_, shape);
  if (peers_.empty()) return schedule;
  for (Step& step : schedule.steps) {
    if (step.kind == StepKind::send || step.kind == StepKind::recv)
      step.peer = peers_[static_cast<std::size_t>(step.peer)];
  }
  return schedule;
}

}  // namespace heddle
