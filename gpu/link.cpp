#include "gpu/cuda_link.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/round_up.hpp"
#include "gpu/address.hpp"

namespace heddle::gpu {
namespace {

// CUDA gives out memory in such portions, and a handle opens the whole portion: nothing of anybody else's may
// be in it.
constexpr std::size_t kPortion = std::size_t{2} << 20;

std::uint64_t pid_space() {
  struct stat status = {};
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

// A debugger's setting: a launch returns when the kernel has ended, and one that waits for another rank's GPU
// would keep the host where it can look after nobody; a rank that is a thread may even keep the other one
// from its launch.
bool launches_block() {
  const char* const value = std::getenv("CUDA_LAUNCH_BLOCKING");
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

}  // namespace

Origin CudaLink::origin() const {
  return {static_cast<std::uint64_t>(getpid()),       pid_space(),
          reinterpret_cast<std::uintptr_t>(context_), instance_,
          static_cast<std::uint64_t>(device_),        {board_[0], board_[1]}};
}

// The stream is one that does not synchronise with the default stream: other work of the process may go on
// beside it. And its blocks come before those of others that wait for a place: other ranks wait for what is
// given here, while the program's own kernels lose little by it.
Status CudaLink::prepare() {
  HEDDLE_TRY(in_context("making a stream", [&](const Driver& driver) {
    int least = 0;
    int greatest = 0;
    CUresult error = driver.CtxGetStreamPriorityRange(&least, &greatest);
    if (error == CUDA_SUCCESS)
      error = driver.StreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, greatest);
    for (CUevent* event : {&event_, &end_, &chain_}) {
      if (error == CUDA_SUCCESS) error = driver.EventCreate(event, CU_EVENT_DISABLE_TIMING);
    }
    return error;
  }));
  at_ = stream_;
  char board[sizeof board_] = {};
  CUdevice device = 0;
  if (cuda_.driver.DeviceGet(&device, device_) == CUDA_SUCCESS &&
      cuda_.driver.DeviceGetPCIBusId(board, sizeof board, device) == CUDA_SUCCESS)
    std::memcpy(board_, board, sizeof board);
  int limited = 0;
  if (cuda_.driver.DeviceGet(&device, device_) == CUDA_SUCCESS &&
      cuda_.driver.DeviceGetAttribute(&limited, CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, device) ==
          CUDA_SUCCESS)
    may_wait_ = limited == 0 && !launches_block();
  return load(DType::f32, Op::sum);
}

Status CudaLink::load(DType type, Op op) {
  const Current current(cuda_.driver, context_);
  if (current.error() != CUDA_SUCCESS)
    return cuda_error(cuda_.driver, current.error(), fmt::format("loading kernels on GPU {}", device_));
  return cuda_.kernels.load(type, op);
}

CudaLink::~CudaLink() {
  close();
  // Where CUDA or the context went first this fails and does no harm.
  const Current current(cuda_.driver, context_, instance_);
  const Aside aside(cuda_.driver);
  if (current.error() != CUDA_SUCCESS) return;
  if (own_ != 0) cuda_.driver.MemFree(own_);
  for (CUevent event : {event_, end_, chain_, marks_[0], marks_[1]}) {
    if (event != nullptr) cuda_.driver.EventDestroy(event);
  }
  if (stream_ != nullptr) cuda_.driver.StreamDestroy(stream_);
}

// ---- Scratch

Result<Export> CudaLink::allocate(std::size_t bytes, bool for_processes) {
  const std::size_t whole = round_up(bytes, kPortion);
  Export mine;
  mine.origin = origin();
  mine.bytes = bytes;
  HEDDLE_TRY(in_context(fmt::format("allocating {} bytes", whole).c_str(),
                        [&](const Driver& driver) { return driver.MemAlloc(&own_, whole); }));
  mine.address = own_;
  own_bytes_ = whole;
  if (!for_processes) return mine;
  CUipcMemHandle handle = {};
  static_assert(sizeof handle == sizeof mine.handle);
  HEDDLE_TRY(in_context("exporting memory by CUDA IPC",
                        [&](const Driver& driver) { return driver.IpcGetMemHandle(&handle, own_); }));
  std::memcpy(mine.handle, &handle, sizeof handle);
  return mine;
}

// Another process's by its handle. In one process a handle leads nowhere, and a pointer does where the GPU
// can follow it.
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

Result<std::byte*> CudaLink::pin(std::size_t bytes) {
  const Current current(cuda_.driver, context_);
  if (current.error() == CUDA_SUCCESS) pinned_ = cuda_.pool.take(bytes, context_);
  if (pinned_.memory() != nullptr) return static_cast<std::byte*>(pinned_.memory());
  return Status(Code::out_of_memory,
                fmt::format("{} bytes of pinned memory beside GPU {} (HEDDLE_PINNED_BYTES sets a limit)",
                            bytes, device_));
}

// To look at a link's own work, to wait for it and to free what is its own is no part of what a stream of
// this thread's is captured for: garbage collectors end communicators at any time.
void CudaLink::finish() {
  const Current current(cuda_.driver, context_, instance_);
  const Aside aside(cuda_.driver);
  if (ended_ && current.error() == CUDA_SUCCESS) cuda_.driver.EventSynchronize(end_);
}

// Also where there was nothing: the driver tells of failures in any case.
Result<bool> CudaLink::finished() {
  HEDDLE_TRY(check_there());
  bool done = true;
  HEDDLE_TRY(in_context("looking at a stream", [&](const Driver& driver) {
    const Aside aside(driver);
    const CUresult error = driver.EventQuery(end_);
    done = error != CUDA_ERROR_NOT_READY;
    return done ? error : CUDA_SUCCESS;
  }));
  return done;
}

void CudaLink::close() {
  finish();
  const Current current(cuda_.driver, context_, instance_);
  const Aside aside(cuda_.driver);
  if (current.error() == CUDA_SUCCESS) {
    for (const CUdeviceptr at : imported_)
      cuda_.driver.IpcCloseMemHandle(at);
    for (CUevent event : imported_marks_)
      cuda_.driver.EventDestroy(event);
    handshake_.close();
    words_.close();
  }
  exchange_.close();
  ended_ = false;
  imported_.clear();
  imported_marks_.clear();
  scratch_.clear();
  others_.clear();
}

// ---- Buffers

Status CudaLink::check_there() const {
  if (is_there()) return {};
  return Status(Code::system,
                fmt::format("the context on GPU {} was destroyed or reset, and what heddle had there with it",
                            device_));
}

Result<bool> CudaLink::holds(const void* buffer, std::size_t bytes) {
  HEDDLE_TRY(check_there());
  const Aside aside(cuda_.driver);
  const auto* at = static_cast<const std::byte*>(buffer);
  while (true) {
    const Result<Place> place = cuda_.pointers.look_up(at);
    if (!place.ok()) return place.status();
    if (!needs_image(place->kind)) return false;
    const Result<CUcontext> context = cuda_.contexts.of(place.value());
    if (!context.ok()) return context.status();
    if (context.value() != context_) return false;
    HEDDLE_TRY(check_length(place.value(), at, bytes));
    if (place->kind != Kind::vmm) return true;
    // Mapped memory may go over several mappings. The place has what they were reserved in, of which some may
    // not be mapped.
    CUdeviceptr begin = 0;
    std::size_t mapped = 0;
    const CUresult error = cuda_.driver.MemGetAddressRange(&begin, &mapped, number(at));
    const CUdeviceptr until = begin + mapped;
    if (error != CUDA_SUCCESS || until <= number(at))
      return Status(Code::invalid_argument,
                    fmt::format("{} bytes of GPU memory at {}: nothing is mapped at {}: {}", bytes, buffer,
                                static_cast<const void*>(at), error_text(cuda_.driver, error)));
    if (bytes <= until - number(at)) return true;
    bytes -= until - number(at);
    at += until - number(at);
  }
}

// ---- Work

Status CudaLink::after_earlier_work() {
  if (at_ != stream_) return {};
  return in_context("waiting for the default stream", [&](const Driver& driver) {
    CUresult error = driver.EventRecord(event_, default_stream());
    if (error == CUDA_SUCCESS) error = driver.StreamWaitEvent(next(), event_, 0);
    return error == CUDA_SUCCESS && ended_ ? driver.StreamWaitEvent(next(), end_, 0) : error;
  });
}

Status CudaLink::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return {};
  return in_context("copying", [&](const Driver& driver) {
    return driver.MemcpyDtoDAsync(number(to), number(from), bytes, next());
  });
}

Status CudaLink::to_host(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return {};
  return in_context("copying to the host", [&](const Driver& driver) {
    return driver.MemcpyDtoHAsync(to, number(from), bytes, next());
  });
}

Status CudaLink::to_device(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return {};
  return in_context("copying from the host", [&](const Driver& driver) {
    return driver.MemcpyHtoDAsync(number(to), from, bytes, next());
  });
}

Status CudaLink::pieces_to_host(void* to, const void* from, std::size_t bytes, std::size_t apart,
                                std::size_t pieces) {
  CUDA_MEMCPY2D what = {};
  what.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  what.srcDevice = number(from);
  what.srcPitch = apart;
  what.dstMemoryType = CU_MEMORYTYPE_HOST;
  what.dstHost = to;
  what.dstPitch = bytes;
  what.WidthInBytes = bytes;
  what.Height = pieces;
  return in_context("copying pieces to the host",
                    [&](const Driver& driver) { return driver.Memcpy2DAsync(&what, next()); });
}

Status CudaLink::fold(DType type, Op op, std::span<const void* const> inputs, std::span<void* const> outputs,
                      std::size_t count) {
  const Current current(cuda_.driver, context_);
  if (current.error() != CUDA_SUCCESS)
    return cuda_error(cuda_.driver, current.error(), fmt::format("folding on GPU {}", device_));
  return cuda_.kernels.fold(next(), type, op, inputs, outputs, count);
}

// Also at the end of those who use the link. The driver takes microseconds to find that there is nothing to
// wait for.
Status CudaLink::wait() {
  HEDDLE_TRY(check_there());
  if (!waits_) return {};
  HEDDLE_TRY(in_context("waiting for work", [&](const Driver& driver) { return wait_for(driver, stream_); }));
  waits_ = false;
  return {};
}

bool CudaLink::done() {
  if (!waits_) return true;
  const Current current(cuda_.driver, context_);
  const Aside aside(cuda_.driver);
  return current.error() != CUDA_SUCCESS || cuda_.driver.StreamQuery(stream_) != CUDA_ERROR_NOT_READY;
}

Status CudaLink::give(const std::function<Status(Cuda& cuda, Stream stream)>& body) {
  const Current current(cuda_.driver, context_, instance_);
  if (current.error() != CUDA_SUCCESS)
    return cuda_error(cuda_.driver, current.error(), fmt::format("working on GPU {}", device_));
  return body(cuda_, next());
}

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
