#include "collectives/pipeline.hpp"

#include <algorithm>
#include <utility>

namespace heddle {

int Pipeline::open(Window window, Emit emit, bool rotates) {
  stages_.push_back({Stage::Kind::open, window, std::move(emit), rotates, {}});
  return static_cast<int>(stages_.size()) - 1;
}

void Pipeline::act(Window window, Emit emit, bool rotates) {
  stages_.push_back({Stage::Kind::act, window, std::move(emit), rotates, {}});
}

int Pipeline::wait_for(std::vector<Need> needs) {
  stages_.push_back({Stage::Kind::wait, {0, 0}, nullptr, false, std::move(needs)});
  return static_cast<int>(stages_.size()) - 1;
}

void Pipeline::also_wait_for(int wait, Need need) {
  stages_[static_cast<std::size_t>(wait)].needs.push_back(need);
}

// How many operations were opened after the needed one when iteration i reaches the wait, or kInactive when
// the needed one does not exist.
std::int64_t Pipeline::opened_after(Need need, Iteration i, std::size_t wait_stage) const {
  const auto needed = static_cast<std::size_t>(need.stage);
  const Iteration j = i - need.lag;
  if (!stages_[needed].window.contains(j)) return kInactive;
  std::int64_t after = 0;
  for (std::size_t k = 0; k < stages_.size(); ++k) {
    const Stage& stage = stages_[k];
    if (stage.kind != Stage::Kind::open) continue;
    const Iteration from = std::max(stage.window.first, k > needed ? j : j + 1);
    const Iteration to = std::min(stage.window.last, k < wait_stage ? i + 1 : i);
    after += std::max<std::int64_t>(0, to - from);
  }
  return after;
}

// Per stage: kInactive, or for a wait how many operations may stay open, or 0 for an active stage.
void Pipeline::signature(Iteration i, std::vector<std::int64_t>& result) const {
  result.assign(stages_.size(), kInactive);
  for (std::size_t k = 0; k < stages_.size(); ++k) {
    const Stage& stage = stages_[k];
    if (stage.kind != Stage::Kind::wait) {
      if (stage.window.contains(i)) result[k] = 0;
      continue;
    }
    for (const Need need : stage.needs) {
      const std::int64_t after = opened_after(need, i, k);
      if (after == kInactive) continue;
      result[k] = result[k] == kInactive ? after : std::min(result[k], after);
    }
  }
}

// Every iteration where the signature may change: where a stage, or the operation that a wait looks back to,
// enters or leaves its window.
std::vector<Pipeline::Iteration> Pipeline::boundaries() const {
  int longest_lag = 0;
  for (const Stage& stage : stages_)
    for (const Need need : stage.needs)
      longest_lag = std::max(longest_lag, need.lag);
  std::vector<Iteration> result;
  Iteration end = INT64_MIN;
  for (const Stage& stage : stages_) {
    if (stage.window.first >= stage.window.last) continue;
    end = std::max(end, stage.window.last);
    for (Iteration d = 0; d <= longest_lag + 1; ++d) {
      result.push_back(stage.window.first + d);
      result.push_back(stage.window.last + d);
    }
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  // Waits alone, after the last stage, are what the schedule's final wait does.
  while (!result.empty() && result.back() > end)
    result.pop_back();
  return result;
}

void Pipeline::emit_segment(Builder& builder, Iteration from, Iteration to,
                            const std::vector<std::int64_t>& what) const {
  if (std::all_of(what.begin(), what.end(), [](std::int64_t w) { return w == kInactive; })) return;
  const bool rolled = to - from > 1;
  const auto body = [&](Builder& b) {
    for (std::size_t k = 0; k < stages_.size(); ++k) {
      if (what[k] == kInactive) continue;
      if (stages_[k].kind == Stage::Kind::wait) {
        b.wait(static_cast<std::uint32_t>(what[k]));
        continue;
      }
      stages_[k].emit(b, from);
      if (rolled && stages_[k].rotates) b.flag(kRotate);
    }
  };
  if (rolled) {
    builder.repeat(static_cast<std::uint32_t>(to - from), stride_, body);
  } else {
    body(builder);
  }
}

// Schedules are built for every rank that is priced, so that each boundary is looked at once and nothing is
// allocated for it.
void Pipeline::emit(Builder& builder) const {
  const std::vector<Iteration> at = boundaries();
  std::vector<std::int64_t> what;
  std::vector<std::int64_t> next;
  if (at.size() > 1) signature(at.front(), next);
  std::size_t i = 0;
  while (i + 1 < at.size()) {
    what.swap(next);
    std::size_t end = i + 1;
    for (; end + 1 < at.size(); ++end) {
      signature(at[end], next);
      if (next != what) break;
    }
    emit_segment(builder, at[i], at[end], what);
    i = end;
  }
}

}  // namespace heddle
