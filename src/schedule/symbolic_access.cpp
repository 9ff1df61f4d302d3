// What a step may touch: the memory rules of a symbolic run.
#include <algorithm>
#include <string>

#include "schedule/dump.hpp"
#include "schedule/symbolic_run.hpp"

namespace heddle {
SymbolicRun::Place SymbolicRun::place(const Rank& r, Slot slot) const {
  const std::uint32_t unit = slot == Slot::scratch && r.schedule->scratch_units != 0 ? r.cursor.unit() : 0;
  return {slot, r.cursor.chunk(), r.cursor.step().count, unit};
}

Status SymbolicRun::check_range(std::int32_t rank, const Place& p) const {
  const Schedule& s = *ranks_[static_cast<std::size_t>(rank)].schedule;
  if (p.first >= s.chunks || p.count > s.chunks - p.first) {
    return violation(
        rank, chunks_text(p.first, p.count) + " are out of range: there are " + std::to_string(s.chunks));
  }
  if (p.slot != Slot::scratch) return {};
  if (p.unit >= s.scratch_units) {
    return violation(rank, "scratch unit " + std::to_string(p.unit) + " is out of range: there are " +
                               std::to_string(s.scratch_units));
  }
  if (p.count > s.unit_chunks) {
    return violation(rank, std::to_string(p.count) + " chunks do not fit into a scratch unit of " +
                               std::to_string(s.unit_chunks));
  }
  return {};
}

// Data and input count as one memory, which they are in place. All of a scratch unit counts as touched: every
// access starts at its first byte.
Status SymbolicRun::check_open(std::int32_t rank, const Place& p, bool writing) const {
  const Fifo<OpenOp>& open = ranks_[static_cast<std::size_t>(rank)].open;
  for (std::size_t i = 0; i < open.size(); ++i) {
    const OpenOp& op = open[i];
    if (!writing && !op.receives) continue;
    const bool scratch = p.slot == Slot::scratch;
    if (scratch != (op.place.slot == Slot::scratch)) continue;
    if (scratch ? p.unit != op.place.unit
                : p.first >= op.place.first + op.place.count || op.place.first >= p.first + p.count) {
      continue;
    }
    return violation(rank, std::string(writing ? "writes " : "reads ") + slot_name(p.slot) + " " +
                               chunks_text(p.first, p.count) + " while the " +
                               (op.receives ? "receive" : "send") + " of step " + std::to_string(op.step) +
                               " iteration " + std::to_string(op.iteration) +
                               (op.receives ? " writes it" : " reads it"));
  }
  return {};
}

Status SymbolicRun::check_read(std::int32_t rank, const Place& p) const {
  HEDDLE_TRY(check_range(rank, p));
  HEDDLE_TRY(check_open(rank, p, false));
  const Rank& r = ranks_[static_cast<std::size_t>(rank)];
  if (p.slot == Slot::input) {
    if (!folds(r.schedule->collective)) {
      return violation(rank, std::string("reads input, which ") + collective_name(r.schedule->collective) +
                                 " does not have: what it starts from is in data");
    }
    for (std::uint32_t c = p.first; c < p.first + p.count; ++c) {
      if (r.data[c] != kUndefined) {
        return violation(rank,
                         "reads input chunk " + std::to_string(c) +
                             " after data of that chunk was written: in place they are the same memory");
      }
    }
    return {};
  }
  for (std::uint32_t i = 0; i < p.count; ++i) {
    if (load(rank, p, i) == kUndefined) {
      return violation(rank, std::string("reads ") + slot_name(p.slot) + " chunk " +
                                 std::to_string(p.first + i) +
                                 (p.slot == Slot::scratch ? " from unit " + std::to_string(p.unit) : "") +
                                 ", which was never written there");
    }
  }
  return {};
}

// For scratch: what lay in the unit under another first chunk lay at other bytes, so it is gone.
Status SymbolicRun::begin_write(std::int32_t rank, const Place& p) {
  HEDDLE_TRY(check_range(rank, p));
  HEDDLE_TRY(check_open(rank, p, true));
  if (p.slot == Slot::input) return violation(rank, "writes input, which belongs to the caller");
  if (p.slot == Slot::scratch) {
    Unit& unit = at(rank).scratch[p.unit];
    if (unit.first != p.first) std::fill(unit.cells.begin(), unit.cells.end(), kUndefined);
    unit.first = p.first;
  }
  return {};
}

}  // namespace heddle
