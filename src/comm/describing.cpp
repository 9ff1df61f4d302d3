// What a communicator says of itself.
#include <fmt/format.h>

#include "comm/communicator_impl.hpp"

namespace heddle {

const char* CommunicatorImpl::algorithm(Collective collective, std::size_t bytes) {
  const Turn turn(asked_);
  if (size_ == 1) return "self";
  const Result<const Selection*> selection = plans_.selection(collective, bytes, false);
  return selection.ok() ? selection.value()->choice.algorithm->name : "none";
}

// Worth a warning where the user chose the list.
void CommunicatorImpl::report_passed_over(const Config& config) const {
  if (rank_ != 0) return;
  const LogLevel level = config.transports == Config().transports ? LogLevel::info : LogLevel::warn;
  for (const std::string& line : connections_->passed_over)
    log_.line(level, fmt::format("HEDDLE_TRANSPORTS: {} is used between nodes, not {}",
                                 connections_->internode.transport->capabilities().name, line));
}

std::string CommunicatorImpl::describe() {
  const Turn turn(asked_);  // a network looks at what the thread uses
  const TopologyView& t = connections_->topology;
  std::string transports;
  for (const Transport* transport : connections_->ports.transports) {
    transports += (transports.empty() ? "" : ", ") + std::string(transport->capabilities().name);
  }
  if (connections_->internode.network) transports += " (" + connections_->internode.network->describe() + ")";
  std::string between;
  if (const MessageCost& c = connections_->message_cost; c != MessageCost{})
    between = fmt::format(
        ", a message between nodes takes {:.1f} us ({:.2f} of them its ends) and {:.3f} ns a byte",
        c.fixed_ns / 1e3, c.handling_ns / 1e3, c.per_byte_ns);
  if (const double least = connections_->message_cost.least_ns; least > 0)
    between += fmt::format(", at least {:.1f} us while all ranks send", least / 1e3);
  if (const double crossing = connections_->message_cost.crossing; crossing > 0)
    between += fmt::format(", {:.1f} times as long while all nodes send far", crossing);
  if (!connections_->comparison.empty()) between += fmt::format(" ({})", connections_->comparison);
  std::string stores;
  if (const std::uint32_t packed = connections_->process->small_stores.load(std::memory_order_relaxed);
      packed != 0) {
    const SmallStores found = unpack_small_stores(packed);
    stores = fmt::format(", stores of small payloads: {}, from 4 KiB on {} (measured)",
                         store_way_name(found.middle), store_way_name(found.large));
  }
  if (single_copy_) stores += ", bcasts of 8 to 64 KiB copied once";
  std::string domains;
  if (t.has_domains()) domains = fmt::format(" ({} domains in this one)", t.domains(rank_));
  return fmt::format(
      "{} rank{} on {} node{}{}, transports: {}, {} core{} here, {} polls before yielding{}{}{}{}", size_,
      size_ == 1 ? "" : "s", t.nodes(), t.nodes() == 1 ? "" : "s", domains,
      transports.empty() ? "none" : transports, connections_->cores, connections_->cores == 1 ? "" : "s",
      policy_.spins.polls(), between, stores, learnt_,
      thread_plan_ || thread_ ? ", a thread that moves requests" : "");
}

}  // namespace heddle
