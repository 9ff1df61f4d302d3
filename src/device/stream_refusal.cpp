#include "device/stream_refusal.hpp"

#include <fmt/format.h>

namespace heddle {

Status refuse_stream(const std::string& why) {
  return Status(
      Code::unsupported,
      fmt::format("{}: synchronise the stream and call heddle_allreduce or heddle_bcast instead", why));
}

Status refused_elsewhere(int rank) {
  return refuse_stream(
      fmt::format("rank {} could not do its part of a collective on streams, and says why there", rank));
}

Status refuse_mixed(bool captured) {
  return Status(
      Code::unsupported,
      fmt::format(
          "this rank's stream is {}being captured into a CUDA graph, another rank's is{}: capture the "
          "collective on all ranks or on none",
          captured ? "" : "not ", captured ? " not" : ""));
}

Status refuse_different() {
  return Status(
      Code::invalid_argument,
      "the ranks differ in the length, type, operation or root of this call: all must make the same "
      "calls, and HEDDLE_CHECK=1 tells who calls what");
}

Status refuse_place(const void* buffer) {
  return refuse_stream(fmt::format(
      "the buffer at {} is not in the GPU context that serves this communicator's calls", buffer));
}

std::string why_not_threads(int rank, int other) {
  return fmt::format(
      "ranks {} and {} are threads of one process and share a GPU, where their streams may wait for "
      "each other for ever; as processes they can (HEDDLE_SHARED_CONTEXT=1 lets threads try)",
      rank, other);
}

Status find_for_stream(gpu::Gpu& gpu, gpu::Stream stream, const void* buffer, gpu::Place* found) {
  if (!gpu.present()) return refuse_stream("this process has not loaded CUDA, or HEDDLE_CUDA=0 hides it");
  const Result<gpu::Place> place = gpu.place(buffer);
  if (!place.ok()) return place.status();
  if (!gpu::needs_image(place->kind))
    return refuse_stream(
        fmt::format("the buffer at {} is {} memory, not a GPU's", buffer, gpu::kind_name(place->kind)));
  const Result<bool> captured = gpu::is_captured(gpu, place.value(), stream);
  if (captured.ok() && captured.value())
    return Status(
        Code::unsupported,
        "the first collective on a stream sets the communicator up, which a capture into a CUDA graph "
        "does not allow: call it once outside the capture first");
  *found = place.value();
  return captured.status();
}

}  // namespace heddle
