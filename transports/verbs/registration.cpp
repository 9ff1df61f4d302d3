#include "transports/verbs/registration.hpp"

namespace heddle::verbs {
namespace {

// Registrations that nobody uses, where they may be kept at all.
constexpr std::size_t kMostKept = 64;

}  // namespace

Registrations::~Registrations() {
  for (Entry& entry : entries_)
    pinner_.unpin(entry.pinned.handle);
}

Result<Registrations::Lease> Registrations::take(const void* data, std::size_t bytes, bool writable) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  ++takes_;
  for (Entry& entry : entries_) {
    if (entry.begin > begin || entry.end - begin < bytes || entry.end < begin) continue;
    if (writable && !entry.writable) continue;
    ++entry.leases;
    entry.used = takes_;
    return Lease{entry.pinned.keys, entry.number};
  }
  const Result<MemoryPinner::Pinned> pinned = pinner_.pin(data, bytes, writable);
  HEDDLE_TRY(pinned.status());
  entries_.push_back({takes_, begin, begin + bytes, writable, 1, takes_, pinned.value()});
  return Lease{pinned.value().keys, takes_};
}

void Registrations::give_back(Lease& lease) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].number != lease.number) continue;
    lease = {};
    if (--entries_[i].leases > 0) return;
    if (!pinner_.follows_page_tables()) {
      drop(i);
    } else if (entries_.size() > kMostKept) {
      drop_oldest_unused();
    }
    return;
  }
}

// A lease that nobody gives back keeps it.
void Registrations::add(const std::byte* data, std::size_t bytes, const MemoryPinner::Pinned& pinned) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  entries_.push_back({++takes_, begin, begin + bytes, true, 1, takes_, pinned});
}

void Registrations::remove(const std::byte* data) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].begin == begin && entries_[i].leases > 0) return drop(i);
  }
}

void Registrations::drop(std::size_t index) {
  pinner_.unpin(entries_[index].pinned.handle);
  entries_[index] = entries_.back();
  entries_.pop_back();
}

void Registrations::drop_oldest_unused() {
  std::size_t oldest = entries_.size();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].leases == 0 && (oldest == entries_.size() || entries_[i].used < entries_[oldest].used))
      oldest = i;
  }
  if (oldest != entries_.size()) drop(oldest);
}

}  // namespace heddle::verbs
