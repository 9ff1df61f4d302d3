#include "gpu/link.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "gpu/cuda.hpp"

namespace heddle::gpu {
namespace {

// CUDA gives out memory in such portions, and a handle opens the whole portion: nothing of anybody else's may be in it.
constexpr std::size_t kPortion = std::size_t{2} << 20;

CUdeviceptr number(const void* address) {
  return reinterpret_cast<CUdeviceptr>(address);
}

std::uint64_t pid_space() {
  struct stat status = {};
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

class CudaLink final : public Link {
 public:
  CudaLink(Cuda& cuda, CUcontext context, int device) : cuda_(cuda), context_(context), device_(device) {}
  ~CudaLink() override;
  Status prepare();

  Origin origin() const override {
    return {static_cast<std::uint64_t>(getpid()), pid_space(), reinterpret_cast<std::uintptr_t>(context_),
            static_cast<std::uint64_t>(device_)};
  }
  Result<Export> allocate(std::size_t bytes) override;
  Status open(std::span<const Export> all, int rank) override;
  void close() override;
  void abandon() override {
    own_ = 0;
    marks_[0] = marks_[1] = nullptr;
  }
  std::byte* scratch(int rank) const override {
    return reinterpret_cast<std::byte*>(scratch_[static_cast<std::size_t>(rank)]);
  }

  Result<bool> holds(const void* buffer, std::size_t bytes) override;
  bool folds(DType type, Op op) override { return cuda_.kernels.load(type, op).ok(); }

  Status after_earlier_work() override;
  Status copy(void* to, const void* from, std::size_t bytes) override;
  Status fold(DType type, Op op, std::span<const void* const> inputs, std::span<void* const> outputs,
              std::size_t count) override;
  Status wait() override;
  Status give(const std::function<Status(Cuda& cuda, Stream stream)>& body) override;

  Result<Marks> make_marks(bool for_processes) override;
  Status open_marks(std::span<const Marks> all, int rank) override;
  Status begin_on(Stream stream) override;
  Status mark(unsigned turn) override;
  Status after_others(unsigned turn) override;
  void end_on() override;

 private:
  // What `call` says in the link's context.
  template <typename Call>
  Status in_context(const char* what, const Call& call) const {
    const Current current(cuda_.driver, context_);
    const CUresult error = current.error() != CUDA_SUCCESS ? current.error() : call(cuda_.driver);
    if (error == CUDA_SUCCESS) return {};
    return cuda_error(cuda_.driver, error, fmt::format("{} on GPU {}", what, device_));
  }
  Status reach(const Export& other, CUdeviceptr* at);
  Status reach(const Marks& other, CUevent (&events)[2]);
  CUresult make_mark(const Driver& driver, bool for_processes, unsigned turn, Marks* mine);
  Status takes(CUstream stream) const;

  Cuda& cuda_;
  const CUcontext context_;
  const int device_;
  CUstream stream_ = nullptr;
  CUstream at_ = nullptr;    // what work goes to: stream_, or a caller's
  CUevent event_ = nullptr;  // in the default stream
  CUevent end_ = nullptr;    // in the caller's stream that was used last
  bool ended_ = false;       // end_ was recorded
  CUevent marks_[2] = {nullptr, nullptr};
  CUdeviceptr own_ = 0;
  std::vector<CUdeviceptr> scratch_;   // by rank
  std::vector<CUdeviceptr> imported_;  // of other processes
  struct Events {
    CUevent of[2] = {nullptr, nullptr};
  };
  std::vector<Events> others_;           // by rank; none of its own
  std::vector<CUevent> imported_marks_;  // of other processes
};

// The stream is one that does not synchronise with the default stream: other work of the process may go on beside it.
Status CudaLink::prepare() {
  HEDDLE_TRY(in_context("making a stream", [&](const Driver& driver) {
    const CUresult error = driver.StreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
    return error == CUDA_SUCCESS ? driver.EventCreate(&event_, CU_EVENT_DISABLE_TIMING) : error;
  }));
  at_ = stream_;
  return cuda_.kernels.load(DType::f32, Op::sum);
}

CudaLink::~CudaLink() {
  close();
  // Where CUDA or the context went first this fails and does no harm.
  const Current current(cuda_.driver, context_);
  if (current.error() != CUDA_SUCCESS) return;
  if (own_ != 0) cuda_.driver.MemFree(own_);
  for (CUevent event : {event_, end_, marks_[0], marks_[1]}) {
    if (event != nullptr) cuda_.driver.EventDestroy(event);
  }
  if (stream_ != nullptr) cuda_.driver.StreamDestroy(stream_);
}

// ---- Scratch

Result<Export> CudaLink::allocate(std::size_t bytes) {
  const std::size_t whole = (bytes + kPortion - 1) / kPortion * kPortion;
  Export mine;
  mine.origin = origin();
  mine.bytes = bytes;
  HEDDLE_TRY(in_context(fmt::format("allocating {} bytes", whole).c_str(),
                        [&](const Driver& driver) { return driver.MemAlloc(&own_, whole); }));
  mine.address = own_;
  CUipcMemHandle handle = {};
  static_assert(sizeof handle == sizeof mine.handle);
  HEDDLE_TRY(in_context("exporting memory by CUDA IPC",
                        [&](const Driver& driver) { return driver.IpcGetMemHandle(&handle, own_); }));
  std::memcpy(mine.handle, &handle, sizeof handle);
  return mine;
}

// Another process's by its handle. In one process a handle leads nowhere, and a pointer does where the GPU can follow it.
Status CudaLink::reach(const Export& other, CUdeviceptr* at) {
  if (!other.origin.same_process(origin())) {
    CUipcMemHandle handle = {};
    std::memcpy(&handle, other.handle, sizeof handle);
    HEDDLE_TRY(in_context("opening another rank's memory by CUDA IPC", [&](const Driver& driver) {
      return driver.IpcOpenMemHandle(at, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    }));
    imported_.push_back(*at);
    return {};
  }
  *at = other.address;
  if (other.origin == origin()) return {};
  return in_context("reaching another rank's memory", [&](const Driver& driver) {
    const CUresult error =
        driver.CtxEnablePeerAccess(reinterpret_cast<CUcontext>(std::uintptr_t{other.origin.context}), 0);
    return error == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? CUDA_SUCCESS : error;
  });
}

Status CudaLink::open(std::span<const Export> all, int rank) {
  scratch_.assign(all.size(), 0);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (static_cast<int>(r) == rank) {
      scratch_[r] = own_;
    } else {
      HEDDLE_TRY(reach(all[r], &scratch_[r]));
    }
  }
  return {};
}

void CudaLink::close() {
  const Current current(cuda_.driver, context_);
  if (current.error() == CUDA_SUCCESS) {
    if (ended_) cuda_.driver.EventSynchronize(end_);
    for (const CUdeviceptr at : imported_)
      cuda_.driver.IpcCloseMemHandle(at);
    for (CUevent event : imported_marks_)
      cuda_.driver.EventDestroy(event);
  }
  ended_ = false;
  imported_.clear();
  imported_marks_.clear();
  scratch_.clear();
  others_.clear();
}

// ---- Buffers

Result<bool> CudaLink::holds(const void* buffer, std::size_t bytes) {
  const CUdeviceptr end = number(buffer) + bytes;
  // Mapped memory may go over several mappings; all other lies in one allocation.
  for (CUdeviceptr at = number(buffer);;) {
    const Result<Place> place = cuda_.pointers.look_up(reinterpret_cast<const void*>(at));
    if (!place.ok()) return place.status();
    if (!needs_image(place->kind)) return false;
    const Result<CUcontext> context = cuda_.contexts.of(place.value());
    if (!context.ok()) return context.status();
    if (context.value() != context_) return false;
    const CUdeviceptr until = place->begin + place->bytes;
    if (place->bytes == 0 || end <= until) return true;
    if (place->kind != Kind::vmm)
      return Status(
          Code::invalid_argument,
          fmt::format("{} bytes of {} memory of GPU {} at {}, which ends {} bytes further on", bytes,
                      kind_name(place->kind), place->device, buffer, until - number(buffer)));
    at = until;
  }
}

// ---- Work

Status CudaLink::after_earlier_work() {
  if (at_ != stream_) return {};
  return in_context("waiting for the default stream", [&](const Driver& driver) {
    CUresult error = driver.EventRecord(event_, default_stream());
    if (error == CUDA_SUCCESS) error = driver.StreamWaitEvent(stream_, event_, 0);
    return error == CUDA_SUCCESS && ended_ ? driver.StreamWaitEvent(stream_, end_, 0) : error;
  });
}

Status CudaLink::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return {};
  return in_context("copying", [&](const Driver& driver) {
    return driver.MemcpyDtoDAsync(number(to), number(from), bytes, at_);
  });
}

Status CudaLink::fold(DType type, Op op, std::span<const void* const> inputs, std::span<void* const> outputs,
                      std::size_t count) {
  const Current current(cuda_.driver, context_);
  if (current.error() != CUDA_SUCCESS)
    return cuda_error(cuda_.driver, current.error(), fmt::format("folding on GPU {}", device_));
  return cuda_.kernels.fold(at_, type, op, inputs, outputs, count);
}

Status CudaLink::wait() {
  return in_context("waiting for work",
                    [&](const Driver& driver) { return driver.StreamSynchronize(stream_); });
}

Status CudaLink::give(const std::function<Status(Cuda& cuda, Stream stream)>& body) {
  const Current current(cuda_.driver, context_);
  if (current.error() != CUDA_SUCCESS)
    return cuda_error(cuda_.driver, current.error(), fmt::format("working on GPU {}", device_));
  return body(cuda_, at_);
}

// ---- On a caller's stream

CUresult CudaLink::make_mark(const Driver& driver, bool for_processes, unsigned turn, Marks* mine) {
  // Events without times cost least, and others cannot be shared.
  unsigned flags = CU_EVENT_DISABLE_TIMING;
  if (for_processes) flags |= CU_EVENT_INTERPROCESS;
  CUresult error = driver.EventCreate(&marks_[turn], flags);
  if (error != CUDA_SUCCESS) return error;
  mine->address[turn] = reinterpret_cast<std::uintptr_t>(marks_[turn]);
  if (!for_processes) return CUDA_SUCCESS;
  CUipcEventHandle handle = {};
  static_assert(sizeof handle == sizeof mine->handle[0]);
  error = driver.IpcGetEventHandle(&handle, marks_[turn]);
  std::memcpy(mine->handle[turn], &handle, sizeof handle);
  return error;
}

Result<Marks> CudaLink::make_marks(bool for_processes) {
  Marks mine;
  mine.origin = origin();
  HEDDLE_TRY(in_context("making events that other ranks wait for", [&](const Driver& driver) {
    CUresult error = driver.EventCreate(&end_, CU_EVENT_DISABLE_TIMING);
    for (unsigned turn = 0; turn < 2 && error == CUDA_SUCCESS; ++turn)
      error = make_mark(driver, for_processes, turn, &mine);
    return error;
  }));
  return mine;
}

Status CudaLink::reach(const Marks& other, CUevent (&events)[2]) {
  for (unsigned turn = 0; turn < 2; ++turn) {
    if (other.origin.same_process(origin())) {
      events[turn] = reinterpret_cast<CUevent>(std::uintptr_t{other.address[turn]});
      continue;
    }
    CUipcEventHandle handle = {};
    std::memcpy(&handle, other.handle[turn], sizeof handle);
    HEDDLE_TRY(in_context("opening another rank's event by CUDA IPC", [&](const Driver& driver) {
      return driver.IpcOpenEventHandle(&events[turn], handle);
    }));
    imported_marks_.push_back(events[turn]);
  }
  return {};
}

Status CudaLink::open_marks(std::span<const Marks> all, int rank) {
  others_.assign(all.size(), {});
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (static_cast<int>(r) != rank) HEDDLE_TRY(reach(all[r], others_[r].of));
  }
  return {};
}

// Whether work may be given to it as it is.
Status CudaLink::takes(CUstream stream) const {
  // The default streams are those of the current context.
  const bool is_default = stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
  CUcontext context = context_;
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult implicit = CUDA_SUCCESS;  // the default stream, while one that synchronises with it is captured
  HEDDLE_TRY(in_context("looking at a stream", [&](const Driver& driver) {
    const CUresult error = is_default ? CUDA_SUCCESS : driver.StreamGetCtx(stream, &context);
    if (error != CUDA_SUCCESS) return error;
    implicit = driver.StreamIsCapturing(stream, &capture);
    return implicit == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ? CUDA_SUCCESS : implicit;
  }));
  if (context != context_)
    return Status(Code::unsupported, fmt::format("the stream {} is not of the context on GPU {} that the "
                                                 "buffers are in: pass one that is",
                                                 static_cast<void*>(stream), device_));
  if (capture != CU_STREAM_CAPTURE_STATUS_NONE || implicit != CUDA_SUCCESS)
    return Status(Code::unsupported,
                  fmt::format("the stream {} is being captured into a CUDA graph, which a collective on a "
                              "stream cannot be: call it outside of the capture",
                              static_cast<void*>(stream)));
  return {};
}

Status CudaLink::begin_on(Stream stream) {
  CUstream given = stream != nullptr ? stream : default_stream();
  HEDDLE_TRY(takes(given));
  if (ended_) {
    HEDDLE_TRY(in_context("waiting for the collective before",
                          [&](const Driver& driver) { return driver.StreamWaitEvent(given, end_, 0); }));
  }
  at_ = given;
  return {};
}

Status CudaLink::mark(unsigned turn) {
  return in_context("recording an event",
                    [&](const Driver& driver) { return driver.EventRecord(marks_[turn], at_); });
}

Status CudaLink::after_others(unsigned turn) {
  return in_context("waiting for other ranks' events", [&](const Driver& driver) {
    CUresult error = CUDA_SUCCESS;
    for (const Events& one : others_) {
      if (one.of[turn] != nullptr && error == CUDA_SUCCESS)
        error = driver.StreamWaitEvent(at_, one.of[turn], 0);
    }
    return error;
  });
}

void CudaLink::end_on() {
  if (at_ == stream_) return;
  // Where this fails the context is of no use any more, and nothing will wait for its work.
  const Current current(cuda_.driver, context_);
  if (current.error() == CUDA_SUCCESS) ended_ = cuda_.driver.EventRecord(end_, at_) == CUDA_SUCCESS;
  at_ = stream_;
}

}  // namespace

Result<std::unique_ptr<Link>> make_link(Gpu& gpu, const Place& place) {
  Cuda& cuda = gpu.cuda();
  if (!cuda.lacking.ok()) return cuda.lacking;
  const Result<CUcontext> context = cuda.contexts.of(place);
  if (!context.ok()) return context.status();
  auto link = std::make_unique<CudaLink>(cuda, context.value(), place.device);
  HEDDLE_TRY(link->prepare());
  return std::unique_ptr<Link>(std::move(link));
}

}  // namespace heddle::gpu
