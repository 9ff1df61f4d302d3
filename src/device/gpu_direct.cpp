#include "device/gpu_direct.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/round_up.hpp"

namespace heddle {
namespace {

// Messages that the network copies, and what it tries the memory with, go in portions of this.
constexpr std::size_t kBounce = std::size_t{64} << 10;
// Nobody has measured from which on pinned memory is faster: its copies take turns on the bus with the
// network, but the host has to fold.
constexpr double kMostCost = 1.5;

}  // namespace

Result<std::unique_ptr<GpuDirect>> GpuDirect::make(gpu::Gpu& gpu, const gpu::Place& place, Transport& network,
                                                   const Room& room) {
  std::unique_ptr<GpuDirect> direct(new GpuDirect(network, room));
  HEDDLE_TRY(direct->prepare(gpu, place));
  return direct;
}

Status GpuDirect::prepare(gpu::Gpu& gpu, const gpu::Place& place) {
  Result<std::unique_ptr<gpu::Link>> link = gpu::make_link(gpu, place);
  HEDDLE_TRY(link.status());
  link_ = std::move(link).value();
  // As aligned as shares are, for kernels.
  const std::size_t of_each = room_.share + round_up(room_.scratch, kShareGrain);
  const Result<gpu::Export> memory = link_->allocate(SharesLayout::kSlots * of_each, false);
  HEDDLE_TRY(memory.status());
  HEDDLE_TRY(link_->open({&memory.value(), 1}, 0));
  memory_ = link_->scratch(0);
  const Result<std::byte*> bounce = link_->pin(kBounce);
  HEDDLE_TRY(bounce.status());
  bounce_ = bounce.value();
  for (std::size_t k = 0; k < works_.size(); ++k) {
    works_[k].direct = this;
    works_[k].scratch_begin = memory_ + k * of_each + room_.share;
  }
  const Result<Descriptor> dmabuf = link_->share_with_networks();
  HEDDLE_TRY(dmabuf.status());
  const Result<DeviceReach> reach =
      network_.add_memory({memory_, SharesLayout::kSlots * of_each, dmabuf.value().number(), this});
  HEDDLE_TRY(reach.status());
  added_ = true;
  reach_ = reach.value();
  return failure();
}

GpuDirect::~GpuDirect() {
  if (added_) network_.remove_memory(memory_);
  if (link_ != nullptr) static_cast<void>(link_->wait());
}

bool GpuDirect::pays() const {
  return is_measured() && std::max(reach_.read, reach_.write) <= kMostCost * reach_.host;
}

std::byte* GpuDirect::at(std::size_t k) const {
  return works_[k % works_.size()].scratch_begin - room_.share;
}

LocalWork* GpuDirect::work_on(std::size_t k, DType type, Op op) {
  Work& work = works_[k % works_.size()];
  work.type = type;
  work.op = op;
  return &work;
}

// ---- Between messages

std::byte* GpuDirect::Work::scratch(std::size_t bytes) {
  return bytes <= direct->room_.scratch ? scratch_begin : nullptr;
}

void GpuDirect::Work::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::lock_guard lock(direct->mutex_);
  if (!direct->failure_.ok()) return;
  direct->keep(direct->link_->after_networks());
  direct->give(direct->link_->copy(to, from, bytes));
}

void GpuDirect::Work::fold(std::byte* to, const std::byte* first, const std::byte* second,
                           std::size_t count) {
  const std::lock_guard lock(direct->mutex_);
  if (!direct->failure_.ok()) return;
  direct->keep(direct->link_->after_networks());
  const void* const inputs[] = {first, second};
  void* const outputs[] = {to};
  direct->give(direct->link_->fold(type, op, inputs, outputs, count));
}

void GpuDirect::give(const Status& given) {
  busy_ = true;
  keep(given);
}

// The first one counts.
void GpuDirect::keep(const Status& status) {
  if (failure_.ok()) failure_ = status;
}

bool GpuDirect::done() {
  const std::lock_guard lock(mutex_);
  if (!busy_) return true;
  if (!link_->done()) return false;
  busy_ = false;
  keep(link_->wait());
  return true;
}

// Also makes what has come last visible to the GPU's other streams.
Status GpuDirect::failure() {
  const std::lock_guard lock(mutex_);
  keep(link_->after_networks());
  return std::exchange(failure_, Status());
}

// ---- Messages that the network copies

void GpuDirect::read(void* to, const std::byte* from, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  keep(link_->after_networks());
  for (std::size_t at = 0; at < bytes && failure_.ok(); at += kBounce) {
    const std::size_t part = std::min(kBounce, bytes - at);
    keep(link_->to_host(bounce_, from + at, part));
    keep(link_->wait());
    std::memcpy(static_cast<std::byte*>(to) + at, bounce_, part);
  }
}

void GpuDirect::write(std::byte* to, const void* from, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  for (std::size_t at = 0; at < bytes && failure_.ok(); at += kBounce) {
    const std::size_t part = std::min(kBounce, bytes - at);
    std::memcpy(bounce_, static_cast<const std::byte*>(from) + at, part);
    keep(link_->to_device(to + at, bounce_, part));
    keep(link_->wait());
  }
}

}  // namespace heddle
