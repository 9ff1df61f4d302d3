#include "schedule/dump.hpp"

#include <array>
#include <cstdio>

namespace heddle {
namespace {

const char* kind_name(StepKind kind) {
  switch (kind) {
    case StepKind::send:
      return "send";
    case StepKind::recv:
      return "recv";
    case StepKind::reduce:
      return "reduce";
    case StepKind::copy:
      return "copy";
    case StepKind::wait:
      return "wait";
    case StepKind::repeat:
      return "repeat";
    case StepKind::team_reduce:
      return "team_reduce";
    case StepKind::team_bcast:
      return "team_bcast";
    case StepKind::team_allreduce:
      return "team_allreduce";
    case StepKind::team_allgather:
      return "team_allgather";
  }
  return "?";
}

std::string place_text(Slot slot, const Step& step) {
  const std::string name = slot_name(slot);
  if (slot != Slot::scratch) return name;
  return name + "[" + std::to_string(step.unit) + ((step.flags & kRotate) != 0 ? "+i]" : "]");
}

// Chunks as they are in iteration `i` of a repeat with this stride, before they wrap around: "0..1+2i".
std::string chunks_text(const Step& step, std::int32_t stride) {
  std::string text = std::to_string(step.chunk);
  if (step.count != 1) text += ".." + std::to_string(static_cast<std::uint64_t>(step.chunk) + step.count - 1);
  if (stride == 0 || (step.flags & kFixed) != 0) return text;
  const std::int64_t size = stride < 0 ? -static_cast<std::int64_t>(stride) : stride;
  return text + (stride < 0 ? "-" : "+") + (size == 1 ? "" : std::to_string(size)) + "i";
}

// What is particular to the kind: peer, operands, order.
std::string operands(const Step& step) {
  const std::string dst = place_text(step.dst, step);
  const std::string src = place_text(step.src, step);
  const std::string lane = step.lane != 0 ? " lane " + std::to_string(step.lane) : "";
  const std::string member = std::to_string(step.peer);
  static constexpr const char* kTeams[] = {"", " in the domain", " among peers"};
  const std::string team = step.lane < kTeamKinds ? kTeams[step.lane] : " in no team";
  switch (step.kind) {
    case StepKind::send:
      return src + " -> rank " + member + lane;
    case StepKind::recv:
      return dst + " <- rank " + member + lane;
    case StepKind::reduce:
      return (step.flags & kSourceFirst) != 0 ? dst + " = " + src + " op " + dst
                                              : dst + " = " + dst + " op " + src;
    case StepKind::copy:
      return dst + " = " + src;
    case StepKind::team_reduce:
      return dst + " of member " + member + " = fold of " + src + team;
    case StepKind::team_bcast:
      return dst + " = " + src + " of member " + member + team;
    case StepKind::team_allreduce:
      return dst + " = fold of " + src + team;
    case StepKind::team_allgather:
      return dst + " = a chunk of each member's" + team;
    case StepKind::wait:
    case StepKind::repeat:
      break;
  }
  return "";
}

std::string line(std::size_t number, bool in_repeat, std::int32_t stride, const Step& step) {
  std::string text;
  if (step.kind == StepKind::wait) {
    text = step.count == 0 ? "wait for all" : "wait until " + std::to_string(step.count) + " open";
  } else if (step.kind == StepKind::repeat) {
    text = "repeat " + std::to_string(step.count) + " times, stride " + std::to_string(step.stride());
  } else {
    std::array<char, 64> head{};
    std::snprintf(head.data(), head.size(), "%-*s %-10s ", in_repeat ? 14 : 16, kind_name(step.kind),
                  chunks_text(step, stride).c_str());
    text = head.data() + operands(step);
  }
  std::array<char, 32> prefix{};
  std::snprintf(prefix.data(), prefix.size(), "%4zu  %s", number, in_repeat ? "  " : "");
  return prefix.data() + text + "\n";
}

}  // namespace

const char* slot_name(Slot slot) {
  switch (slot) {
    case Slot::data:
      return "data";
    case Slot::input:
      return "input";
    case Slot::scratch:
      return "scratch";
  }
  return "no slot";
}

std::string dump(const Schedule& schedule) {
  std::string text = collective_name(schedule.collective);
  if (has_root(schedule.collective))
    text += (schedule.collective == Collective::bcast ? " from rank " : " to rank ") +
            std::to_string(schedule.root);
  text += ", chunks " + std::to_string(schedule.chunks) + ", scratch " +
          std::to_string(schedule.scratch_units) + " x " + std::to_string(schedule.unit_chunks) +
          " chunks, at most " + std::to_string(schedule.max_open) + " open";
  text += schedule.in_order ? ", in rank order\n" : "\n";
  std::size_t body_end = 0;
  std::int32_t stride = 0;
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    text += line(i, i < body_end, i < body_end ? stride : 0, step);
    if (step.kind == StepKind::repeat && step.peer > 0) {
      body_end = i + 1 + static_cast<std::size_t>(step.peer);
      stride = step.stride();
    }
  }
  return text;
}

}  // namespace heddle
