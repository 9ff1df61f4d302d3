#include "interpose/backend/device_buffers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "interpose/backend/abi.hpp"

namespace heddle::backend {

void Span::join(const Span& other) {
  if (other.bytes == 0) return;
  if (bytes == 0) {
    *this = other;
    return;
  }
  const std::ptrdiff_t own_end = begin + static_cast<std::ptrdiff_t>(bytes);
  const std::ptrdiff_t end = std::max(own_end, other.begin + static_cast<std::ptrdiff_t>(other.bytes));
  has_gaps = has_gaps || other.has_gaps || other.begin != own_end;
  begin = std::min(begin, other.begin);
  bytes = static_cast<std::size_t>(end - begin);
}

bool DeviceBuffers::span_of(const void* buffer, std::size_t count, MPI_Datatype type, Span* out) const {
  if (const std::size_t size = abi::predefined_size(type); size > 0) {
    *out = {0, 0, false};
    return buffer != nullptr && !__builtin_mul_overflow(count, size, &out->bytes);
  }
  Packing::Layout layout;
  if (!packing_->inspect(buffer, type, &layout) || layout.element_bytes == 0) return false;
  MPI_Aint unused = 0;
  MPI_Aint extent = 0;
  MPI_Aint low = 0;
  MPI_Aint length = 0;
  if (mpi_->Type_get_extent(type, &unused, &extent) != MPI_SUCCESS ||
      mpi_->Type_get_true_extent(type, &low, &length) != MPI_SUCCESS)
    return false;
  // From the first element to the last, which comes before it where the extent is negative.
  MPI_Aint reach = 0;
  if (__builtin_mul_overflow(static_cast<MPI_Aint>(count - 1), extent, &reach)) return false;
  const MPI_Aint begin = low + std::min<MPI_Aint>(reach, 0);
  const MPI_Aint end = low + length + std::max<MPI_Aint>(reach, 0);
  *out = {begin, static_cast<std::size_t>(end - begin), !layout.contiguous};
  return true;
}

// What the default stream was given before a call has written to managed memory by then. A copy waits for
// that.
Status DeviceBuffers::after_gpu_work(const gpu::Place& place, const void* at) {
  if (place.kind != gpu::Kind::managed) return {};
  Result<gpu::Image> byte = gpu_.image(at, 1);
  return byte.ok() ? byte->load() : byte.status();
}

bool DeviceBuffers::may_lie_on_gpu(const void* buffer) {
  if (buffer == MPI_IN_PLACE) return false;
  if (buffer == MPI_BOTTOM) return true;
  const Result<gpu::Place> place = gpu_.place(buffer);
  return !place.ok() || gpu::needs_image(place->kind);
}

Status DeviceBuffers::view(void* buffer, std::size_t count, MPI_Datatype type, HostView* out) {
  Span span;
  if (count > 0 && span_of(buffer, count, type, &span)) return view(buffer, span, out);
  out->buffer_ = buffer;
  return {};
}

Status DeviceBuffers::view(void* buffer, const Span& span, HostView* out) {
  out->buffer_ = buffer;
  if (span.bytes == 0) return {};
  char* const first = reinterpret_cast<char*>(reinterpret_cast<std::uintptr_t>(buffer) +
                                              static_cast<std::uintptr_t>(span.begin));
  if (span.has_gaps) {
    // Absolute addresses could lead anywhere: an image is of one piece of memory.
    const Result<gpu::Place> begin = gpu_.place(first);
    if (!begin.ok()) return begin.status();
    const Result<gpu::Place> end = gpu_.place(first + span.bytes - 1);
    if (!end.ok()) return end.status();
    // Nor is one needed of several that the host can use where they lie.
    const auto is_for_host = [](gpu::Kind kind) {
      return !gpu::needs_image(kind) || kind == gpu::Kind::managed;
    };
    if (is_for_host(begin->kind) && is_for_host(end->kind) &&
        (begin->kind != end->kind || begin->buffer != end->buffer)) {
      HEDDLE_TRY(after_gpu_work(begin.value(), first));
      return after_gpu_work(end.value(), first + span.bytes - 1);
    }
    if (begin->kind != end->kind || begin->device != end->device)
      return Status(Code::unsupported,
                    fmt::format("a datatype that reaches from {} memory at {} to {} memory at {}",
                                kind_name(begin->kind), static_cast<void*>(first), kind_name(end->kind),
                                static_cast<void*>(first + span.bytes - 1)));
  }
  Result<gpu::Image> image = gpu_.image(first, span.bytes);
  if (!image.ok()) return image.status();
  out->image_ = std::move(image).value();
  if (!out->image_.beside()) return {};
  // From MPI_BOTTOM on the elements are anywhere, and no pointer's arithmetic holds.
  out->buffer_ = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(out->image_.host()) -
                                         static_cast<std::uintptr_t>(span.begin));
  return {};
}

}  // namespace heddle::backend
