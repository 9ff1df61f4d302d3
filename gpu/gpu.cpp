#include "gpu/gpu.hpp"

#include <fmt/format.h>

#include <climits>
#include <cstring>
#include <new>

#include "gpu/copies.hpp"
#include "gpu/cuda.hpp"
#include "gpu/readable.hpp"

namespace heddle::gpu {

namespace {

enum class Direction : std::uint8_t { to_host, to_device };

// Between `device` and `host`, which is pinned or not.
Status copy(Cuda& cuda, const Place& place, Direction direction, void* device, void* host, std::size_t bytes,
            bool pinned) {
  const auto failed = [&](CUresult error) {
    return cuda_error(cuda.driver, error,
                      fmt::format("copying {} bytes {} {} memory of GPU {} at {}", bytes,
                                  direction == Direction::to_host ? "from" : "to", kind_name(place.kind),
                                  place.device, device));
  };
  const Result<CUcontext> context = cuda.contexts.of(place);
  if (!context.ok()) return context.status();
  const Current current(cuda.driver, context.value());
  if (current.error() != CUDA_SUCCESS) return failed(current.error());
  const auto at = reinterpret_cast<CUdeviceptr>(device);
  const CUresult error =
      direction == Direction::to_host
          ? copy_to_host(cuda.driver, cuda.pool, context.value(), host, at, bytes, pinned)
          : copy_to_device(cuda.driver, cuda.pool, context.value(), at, host, bytes, pinned);
  return error == CUDA_SUCCESS ? Status() : failed(error);
}

// Given to the default stream of the current context.
CUresult copy_rows(const Driver& driver, const Rows& rows, char* device, const char* host) {
  // A driver takes rows that are so far apart at most.
  constexpr std::size_t kMostPitch = INT_MAX;
  if (rows.height > 1 && rows.pitch <= kMostPitch) {
    CUDA_MEMCPY2D what = {};
    what.srcMemoryType = CU_MEMORYTYPE_HOST;
    what.srcHost = host + rows.begin;
    what.srcPitch = rows.pitch;
    what.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    what.dstDevice = reinterpret_cast<CUdeviceptr>(device + rows.begin);
    what.dstPitch = rows.pitch;
    what.WidthInBytes = rows.width;
    what.Height = rows.height;
    return driver.Memcpy2DAsync(&what, default_stream());
  }
  CUresult error = CUDA_SUCCESS;
  for (std::size_t row = 0; row < rows.height && error == CUDA_SUCCESS; ++row) {
    const std::size_t at = rows.begin + row * rows.pitch;
    error = driver.MemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(device + at), host + at, rows.width,
                                   default_stream());
  }
  return error;
}

}  // namespace

const char* kind_name(Kind kind) {
  static constexpr const char* kNames[] = {"host", "pinned", "device", "managed", "pool", "mapped"};
  return kNames[static_cast<std::size_t>(kind)];
}

// ---- Images

struct Image::Beside {
  Cuda& cuda;
  Place place;
  void* buffer;
  std::size_t bytes;
  PinnedPool::Piece piece;  // one of the two
  std::unique_ptr<std::byte[]> pageable;

  Status move(Direction direction, void* host, std::size_t count) {
    return copy(cuda, place, direction, buffer, host, count, pageable == nullptr);
  }
};

Image::Image(void* buffer) : host_(buffer) {}
Image::Image(Image&& other) noexcept = default;
Image& Image::operator=(Image&& other) noexcept = default;
Image::~Image() = default;

Status Image::load() {
  return beside_ != nullptr ? beside_->move(Direction::to_host, host_, beside_->bytes) : Status();
}

Status Image::store() {
  return beside_ != nullptr ? store_front(beside_->bytes) : Status();
}

Status Image::store_front(std::size_t bytes) {
  return beside_ != nullptr && bytes > 0 ? beside_->move(Direction::to_device, host_, bytes) : Status();
}

Status Image::store_rows(std::span<const Rows> rows) {
  if (beside_ == nullptr) return {};
  const Driver& driver = beside_->cuda.driver;
  const Result<CUcontext> context = beside_->cuda.contexts.of(beside_->place);
  if (!context.ok()) return context.status();
  const Current current(driver, context.value());
  CUresult error = current.error();
  for (std::size_t i = 0; i < rows.size() && error == CUDA_SUCCESS; ++i)
    error = copy_rows(driver, rows[i], static_cast<char*>(beside_->buffer), static_cast<const char*>(host_));
  // In any case: memory may be given back afterwards.
  const CUresult waited = wait_for(driver, default_stream());
  if (error == CUDA_SUCCESS) error = waited;
  if (error == CUDA_SUCCESS) return {};
  return cuda_error(driver, error,
                    fmt::format("copying parts of {} bytes to {} memory of GPU {} at {}", beside_->bytes,
                                kind_name(beside_->place.kind), beside_->place.device, beside_->buffer));
}

// ---- Gpu

Gpu::Gpu(const Settings& settings) : settings_(settings), watch_(settings.enable ? "libcuda.so" : nullptr) {}

Gpu::~Gpu() {
  Cuda* const cuda = cuda_.load(std::memory_order_acquire);
  if (cuda != nullptr && !cuda->stays) delete cuda;
}

void Gpu::configure(const Settings& settings) {
  const std::lock_guard lock(mutex_);
  settings_ = settings;
  // Somebody may have looked already.
  if (Cuda* const cuda = cuda_.load(std::memory_order_relaxed); cuda != nullptr)
    cuda->pool.set_most(settings.pinned_bytes);
  if (!settings.enable) watch_.stop();
}

bool Gpu::ready() {
  if (cuda_.load(std::memory_order_acquire) != nullptr) [[likely]]
    return true;
  const std::lock_guard lock(mutex_);
  if (cuda_.load(std::memory_order_relaxed) != nullptr) return true;
  cuda_.store(new Cuda(load_driver(watch_.handle()), settings_.pinned_bytes), std::memory_order_release);
  return true;
}

Result<Place> Gpu::place(const void* address) {
  Cuda& cuda = this->cuda();
  // Then nobody can tell what is on a device, but for what the host cannot read.
  if (!cuda.lacking.ok()) {
    if (is_readable(address)) return Place{};
    return Status(Code::unsupported,
                  fmt::format("no memory can be read at {}: {}", address, cuda.lacking.message()));
  }
  return cuda.pointers.look_up(address);
}

Result<Image> Gpu::image(const void* buffer, std::size_t bytes) {
  void* const address = const_cast<void*>(buffer);
  if (bytes == 0) return Image(address);
  const Result<Place> place = this->place(buffer);
  if (!place.ok()) return place.status();
  if (!needs_image(place->kind)) return Image(address);
  HEDDLE_TRY(check_length(place.value(), buffer, bytes));

  Cuda& cuda = this->cuda();
  const Result<CUcontext> context = cuda.contexts.of(place.value());
  if (!context.ok()) return context.status();
  Image image;
  image.beside_ =
      std::make_unique<Image::Beside>(Image::Beside{cuda, place.value(), address, bytes, {}, nullptr});
  Image::Beside& beside = *image.beside_;
  {
    const Current current(cuda.driver, context.value());
    if (current.error() == CUDA_SUCCESS) beside.piece = cuda.pool.take(bytes, context.value());
  }
  image.host_ = beside.piece.memory();
  if (image.host_ != nullptr) return image;
  beside.pageable.reset(new (std::nothrow) std::byte[bytes]);
  if (beside.pageable == nullptr)
    return Status(Code::out_of_memory, fmt::format("no memory for an image of {} bytes at {} on GPU {}",
                                                   bytes, buffer, place->device));
  image.host_ = beside.pageable.get();
  return image;
}

Status Gpu::write(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return {};
  const Result<Place> place = this->place(to);
  if (!place.ok()) return place.status();
  if (!needs_image(place->kind)) {
    std::memmove(to, from, bytes);
    return {};
  }
  HEDDLE_TRY(check_length(place.value(), to, bytes));
  return copy(cuda(), place.value(), Direction::to_device, to, const_cast<void*>(from), bytes, false);
}

SettingUp::SettingUp(Gpu& gpu) : aside_(std::make_unique<Aside>(gpu.cuda().driver)) {}

SettingUp::~SettingUp() = default;

}  // namespace heddle::gpu
