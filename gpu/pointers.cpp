#include "gpu/pointers.hpp"

#include <unistd.h>

#include <iterator>

#include <fmt/format.h>

#include "gpu/contexts.hpp"
#include "gpu/readable.hpp"

namespace heddle::gpu {
namespace {

constexpr std::uintptr_t kPage = 4096;

CUdeviceptr as_device(const void* address) {
  return reinterpret_cast<CUdeviceptr>(address);
}

}  // namespace

struct Pointers::Answers {
  CUmemorytype type{};  // 0: the driver knows nothing of the address
  unsigned long long buffer = 0;
  CUcontext context = nullptr;
  int device = -1;
  int managed = 0;

  CUresult ask(const Driver& driver, const void* address) {
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                   CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED};
    void* values[] = {&type, &buffer, static_cast<void*>(&context), &device, &managed};
    return driver.PointerGetAttributes(std::size(names), names, values, as_device(address));
  }
};

Result<Place> Pointers::look_up(const void* address) {
  Answers answers;
  const CUresult error = answers.ask(driver_, address);
  if (error != CUDA_SUCCESS || static_cast<int>(answers.type) == 0) return unknown(address, error);
  if (answers.type == CU_MEMORYTYPE_HOST && answers.managed == 0) {
    Place place;
    place.kind = Kind::pinned;
    return place;
  }
  Place& known = known_[answers.buffer % kKnown];
  {
    const std::lock_guard lock(mutex_);
    if (known.buffer == answers.buffer && answers.buffer != 0 && known.device == answers.device &&
        known.context == answers.context)
      return known;
  }
  const Place place = examine(address, answers);
  used_by_.store(getpid(), std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  known = place;
  return place;
}

Place Pointers::examine(const void* address, const Answers& answers) {
  Place place;
  place.device = answers.device;
  place.context = answers.context;
  place.buffer = answers.buffer;
  // Mapped memory first: it has no context, and neither has that of a pool.
  if (!is_mapped(address, &place.kind, &place.device)) {
    place.kind = answers.managed != 0         ? Kind::managed
                 : answers.context == nullptr ? Kind::pool
                                              : Kind::device;
  }
  CUdeviceptr begin = 0;
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* values[] = {&begin, &place.bytes};
  if (driver_.PointerGetAttributes(std::size(names), names, values, as_device(address)) != CUDA_SUCCESS)
    place.bytes = 0;
  place.begin = begin;
  return place;
}

bool Pointers::is_mapped(const void* address, Kind* kind, int* device) {
  const Aside aside(driver_);
  CUmemGenericAllocationHandle handle = 0;
  if (driver_.MemRetainAllocationHandle(&handle, const_cast<void*>(address)) != CUDA_SUCCESS) return false;
  CUmemAllocationProp of = {};
  const bool known = driver_.MemGetAllocationPropertiesFromHandle(&of, handle) == CUDA_SUCCESS;
  driver_.MemRelease(handle);
  const bool on_device = !known || of.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  *kind = on_device ? Kind::vmm : Kind::pinned;
  if (known && on_device) *device = of.location.id;
  return true;
}

Status check_length(const Place& place, const void* buffer, std::size_t bytes) {
  const std::size_t there = place.begin + place.bytes - reinterpret_cast<std::uintptr_t>(buffer);
  if (place.bytes == 0 || place.kind == Kind::vmm || bytes <= there) return {};
  return Status(Code::invalid_argument,
                fmt::format("{} bytes of {} memory of GPU {} at {}, which ends {} bytes further on", bytes,
                            kind_name(place.kind), place.device, buffer, there));
}

// The host's memory; or what was a device's and is no more, which the host could not touch and live.
Result<Place> Pointers::unknown(const void* address, CUresult error) {
  const auto page = reinterpret_cast<std::uintptr_t>(address) / kPage;
  std::atomic<std::uintptr_t>& seen = host_pages_[page % kKnown];
  if (seen.load(std::memory_order_relaxed) == page) [[likely]]
    return Place{};
  Place mapped;
  if (error == CUDA_SUCCESS && is_mapped(address, &mapped.kind, &mapped.device)) return mapped;
  if (is_readable(address)) {
    seen.store(page, std::memory_order_relaxed);
    return Place{};
  }
  std::string why = "GPU memory that was freed, or whose context was destroyed?";
  const int used_by = used_by_.load(std::memory_order_relaxed);
  if (used_by != 0 && used_by != getpid()) {
    why =
        "this process was forked after CUDA was in use, which leaves it without; start processes that use "
        "CUDA by "
        "executing a program (\"spawn\"), not by fork alone";
  } else if (error == CUDA_ERROR_NOT_INITIALIZED || error == CUDA_ERROR_DEINITIALIZED) {
    why = "CUDA is not initialised in this process, or was when it was forked";
  } else if (error != CUDA_SUCCESS) {
    why = "CUDA answers " + error_text(driver_, error);
  }
  return Status(Code::invalid_argument, fmt::format("no memory can be read at {}: {}", address, why));
}

}  // namespace heddle::gpu
