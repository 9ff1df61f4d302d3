#include "schedule/builder.hpp"

#include <algorithm>
#include <utility>

namespace heddle {
namespace {

Step make(StepKind kind, Slot dst, Slot src, int lane, std::int32_t peer, Chunks c, std::uint32_t unit) {
  Step s{};
  s.kind = kind;
  s.dst = dst;
  s.src = src;
  s.flags = 0;
  s.lane = static_cast<std::uint8_t>(lane & 0xf);
  s.peer = peer;
  s.chunk = c.first;
  s.count = c.count;
  s.unit = unit;
  return s;
}

bool touches_scratch(const Step& s) {
  switch (s.kind) {
    case StepKind::send:
      return s.src == Slot::scratch;
    case StepKind::recv:
      return s.dst == Slot::scratch;
    case StepKind::wait:
    case StepKind::repeat:
      return false;
    default:
      return s.src == Slot::scratch || s.dst == Slot::scratch;
  }
}

// The most operations open at once, found by running the waits. An iteration that starts with as many open as
// the one before it repeats it exactly, so loops stop early.
std::uint32_t most_open(const std::vector<Step>& steps) {
  std::uint32_t open = 0;
  std::uint32_t most = 0;
  auto run = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) {
      if (steps[i].kind == StepKind::send || steps[i].kind == StepKind::recv) most = std::max(most, ++open);
      if (steps[i].kind == StepKind::wait) open = std::min(open, steps[i].count);
    }
  };
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].kind != StepKind::repeat) {
      run(i, i + 1);
      continue;
    }
    const std::size_t end = i + 1 + static_cast<std::size_t>(steps[i].peer);
    for (std::uint32_t k = 0; k < steps[i].count; ++k) {
      const std::uint32_t before = open;
      run(i + 1, end);
      if (open == before) break;
    }
    i = end - 1;
  }
  return most;
}

}  // namespace

const char* collective_name(Collective collective) {
  switch (collective) {
    case Collective::allreduce:
      return "allreduce";
    case Collective::bcast:
      return "bcast";
    case Collective::barrier:
      return "barrier";
    case Collective::reduce:
      return "reduce";
    case Collective::allgather:
      return "allgather";
  }
  return "unknown";
}

Step& Builder::push(Step step) {
  schedule_.steps.push_back(step);
  if (touches_scratch(step)) {
    schedule_.scratch_units = std::max(schedule_.scratch_units, step.unit + 1);
    schedule_.unit_chunks = std::max(schedule_.unit_chunks, step.count);
  }
  return schedule_.steps.back();
}

Builder& Builder::send(std::int32_t to, Chunks c, Slot from, int lane) {
  push(make(StepKind::send, Slot::data, from, lane, to, c, 0));
  return *this;
}

Builder& Builder::send_scratch(std::int32_t to, Chunks c, std::uint32_t unit) {
  push(make(StepKind::send, Slot::data, Slot::scratch, 0, to, c, unit));
  return *this;
}

Builder& Builder::recv(std::int32_t from, Chunks c, int lane) {
  push(make(StepKind::recv, Slot::data, Slot::data, lane, from, c, 0));
  return *this;
}

Builder& Builder::recv_scratch(std::int32_t from, Chunks c, std::uint32_t unit, int lane) {
  push(make(StepKind::recv, Slot::scratch, Slot::data, lane, from, c, unit));
  return *this;
}

Builder& Builder::reduce(Chunks c, std::uint32_t unit, bool scratch_first) {
  Step& s = push(make(StepKind::reduce, Slot::data, Slot::scratch, 0, 0, c, unit));
  if (scratch_first) s.flags = kSourceFirst;
  return *this;
}

Builder& Builder::copy_input() {
  push(make(StepKind::copy, Slot::data, Slot::input, 0, 0, {0, schedule_.chunks}, 0));
  return *this;
}

Builder& Builder::copy_input(Chunks c) {
  push(make(StepKind::copy, Slot::data, Slot::input, 0, 0, c, 0));
  return *this;
}

Builder& Builder::copy_to_scratch(Chunks c, std::uint32_t unit, Slot from) {
  push(make(StepKind::copy, Slot::scratch, from, 0, 0, c, unit));
  return *this;
}

Builder& Builder::wait(std::uint32_t may_stay_open) {
  push(make(StepKind::wait, Slot::data, Slot::data, 0, 0, {0, may_stay_open}, 0));
  return *this;
}

Builder& Builder::team(StepKind verb, Slot from, std::int32_t member, Chunks c, TeamKind team) {
  push(make(verb, Slot::data, from, static_cast<int>(team), member, c, 0));
  return *this;
}

Builder& Builder::flag(StepFlags flags) {
  Step& s = schedule_.steps.back();
  s.flags = static_cast<std::uint8_t>(s.flags | flags) & 0xf;
  return *this;
}

Builder& Builder::scratch(std::uint32_t units) {
  schedule_.scratch_units = std::max(schedule_.scratch_units, units);
  return *this;
}

Builder& Builder::embed(const Schedule& inner, std::span<const std::int32_t> rank_of,
                        std::uint32_t first_chunk) {
  const auto append = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) {
      Step step = inner.steps[i];
      if (step.kind == StepKind::copy && step.src == Slot::input && step.dst == Slot::data) continue;
      if (step.kind == StepKind::send || step.kind == StepKind::recv) {
        step.peer = rank_of[static_cast<std::size_t>(step.peer)];
      }
      if (step.src == Slot::input) step.src = Slot::data;
      if (step.kind != StepKind::wait) step.chunk += first_chunk;
      push(step);
    }
  };
  for (std::size_t i = 0; i < inner.steps.size(); ++i) {
    const Step& head = inner.steps[i];
    if (head.kind != StepKind::repeat) {
      append(i, i + 1);
      continue;
    }
    const std::size_t end = i + 1 + static_cast<std::size_t>(head.peer);
    repeat(head.count, head.stride(), [&](Builder&) { append(i + 1, end); });
    i = end - 1;
  }
  return scratch(inner.scratch_units);
}

std::size_t Builder::open_repeat(std::uint32_t times, std::int32_t stride) {
  push(make(StepKind::repeat, Slot::data, Slot::data, 0, 0, {static_cast<std::uint32_t>(stride), times}, 0));
  return schedule_.steps.size() - 1;
}

void Builder::close_repeat(std::size_t head) {
  if (schedule_.steps.size() == head + 1) {  // an empty body
    schedule_.steps.pop_back();
    return;
  }
  schedule_.steps[head].peer = static_cast<std::int32_t>(schedule_.steps.size() - head - 1);
}

Schedule Builder::finish() && {
  schedule_.max_open = most_open(schedule_.steps);
  // Whether operations stay open after the last step depends on its kind; a trailing wait(0) costs nothing at
  // run time.
  const bool closed =
      schedule_.max_open == 0 || (!schedule_.steps.empty() && schedule_.steps.back().kind == StepKind::wait &&
                                  schedule_.steps.back().count == 0);
  if (!closed) wait(0);
  return std::move(schedule_);
}

}  // namespace heddle
