// What the ranks of a node find out about their shared memory.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "comm/communicator_impl.hpp"
#include "comm/learning.hpp"
#include "engine/kernels/kernels.hpp"
#include "transports/shm/single_copy.hpp"

namespace heddle {

Status Learning::stores() {
  const auto use = [&](const SmallStores& stores) {
    for (const std::unique_ptr<ShmTeam>& each : connections_.teams) {
      if (each) each->use(stores);
    }
  };
  const std::unique_ptr<ShmTeam>& node = connections_.teams[static_cast<std::size_t>(TeamKind::node)];
  std::atomic<std::uint32_t>& known = connections_.process->small_stores;
  if (connections_.measures) {
    const Result<SmallStores> found = measure_small_stores(
        {use, [&](TeamOp& op) { return comm_.run_on_team(op); }, fold_kernel(DType::u8, Op::bor)},
        node->size());
    if (!found.ok()) return found.status();
    known.store(pack(found.value()), std::memory_order_relaxed);
  } else if (const std::uint32_t packed = known.load(std::memory_order_relaxed); packed != 0) {
    use(unpack_small_stores(packed));
  }
  return node ? single_copy(*node) : Status();
}

// The least of what this node's ranks say.
Result<std::uint64_t> Learning::least_on_node(std::uint64_t mine) {
  TeamOp op;
  op.in = reinterpret_cast<const std::byte*>(&mine);
  op.out = reinterpret_cast<std::byte*>(&mine);
  op.count = 1;
  op.element_bytes = sizeof mine;
  op.fold = fold_kernel(DType::u64, Op::min);
  HEDDLE_TRY(comm_.run_on_team(op));
  return mine;
}

void Learning::copy_once(bool on) {
  comm_.single_copy_ = on;
  for (const std::unique_ptr<ShmTeam>& each : connections_.teams) {
    if (each) each->copy_once(on);
  }
}

Result<bool> Learning::try_single_copy(const ShmTeam& team) {
  const auto slowest = [&](double& seconds) -> Status {
    const Result<std::uint64_t> least = least_on_node(~static_cast<std::uint64_t>(1e9 * seconds));
    if (least.ok()) seconds = 1e-9 * static_cast<double>(~least.value());
    return least.status();
  };
  return measure_single_copy(
      {[&](bool once) { copy_once(once); }, [&](TeamOp& op) { return comm_.run_on_team(op); }, slowest},
      team.size());
}

// The same on all ranks of the node: what one of them does not want, or may not do, none does. Bcasts are
// tried here, allgathers try themselves.
Status Learning::single_copy(const ShmTeam& team) {
  enum : std::uint64_t { kNothing, kAllgathers, kBcastsToo };
  std::atomic<bool>& known = connections_.process->single_copy;
  const bool measures = connections_.measures && !config_.single_copy;
  const bool bcasts = config_.single_copy.value_or(measures || known.load(std::memory_order_relaxed));
  Result<std::uint64_t> all = least_on_node(config_.single_copy == false ? kNothing
                                            : bcasts                     ? kBcastsToo
                                                                         : kAllgathers);
  // They have met: all others show where they can be read.
  if (all.ok() && all.value() != kNothing) all = least_on_node(team.reads_all() ? all.value() : kNothing);
  if (!all.ok() || all.value() == kNothing) return all.status();
  for (const std::unique_ptr<ShmTeam>& each : connections_.teams) {
    if (each) each->gather_once(true);
  }
  if (all.value() == kAllgathers) return {};
  const Result<bool> pays = measures ? try_single_copy(team) : Result<bool>(true);
  if (!pays.ok()) return pays.status();
  if (measures) known.store(pays.value(), std::memory_order_relaxed);
  // Not what is known now, which may be what another thread's communicator has just found on this rank alone.
  copy_once(pays.value());
  return {};
}

}  // namespace heddle
