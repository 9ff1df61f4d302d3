// Buffers that may lie on a GPU: where a pointer points, and images of such buffers in the host's memory.
//
// Owned by whoever takes buffers from callers (the preload library's backend, a communicator of the native
// API). CUDA is used only where the process has loaded it itself, and the calling thread's current context is
// left as it was. A build without CUDA has the same interface: without_cuda.cpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "base/status.hpp"
#include "gpu/library_watch.hpp"

namespace heddle::gpu {

enum class Kind : std::uint8_t {
  host,     // memory that CUDA does not know
  pinned,   // the host's, allocated or registered through CUDA
  device,   // cuMemAlloc
  managed,  // cuMemAllocManaged
  pool,     // cuMemAllocAsync
  vmm,      // cuMemMap, of memory on a device
};
const char* kind_name(Kind kind);
// Calls work on host and pinned memory where it lies; what is on a device, or may be, gets an image.
constexpr bool needs_image(Kind kind) {
  return kind != Kind::host && kind != Kind::pinned;
}

// What is known of the memory behind a pointer.
struct Place {
  Kind kind = Kind::host;
  int device = -1;
  void* context = nullptr;   // CUcontext; null: of no context (pool, vmm)
  std::uint64_t buffer = 0;  // CUDA's number for the allocation, never used twice in a process
  std::uintptr_t begin = 0;  // of the allocation, where CUDA says so
  std::size_t bytes = 0;
};

struct Settings {
  bool enable = true;
  std::size_t pinned_bytes = std::size_t{256} << 20;  // at most so much pinned memory at once
};

class Cuda;

// Pieces of a buffer of one length, each as far from the one before it.
struct Rows {
  std::size_t begin = 0;
  std::size_t width = 0;
  std::size_t pitch = 0;  // at least the width
  std::size_t height = 1;
};

// The host's view of a buffer: the buffer itself, or memory beside it. Its Gpu outlives it.
class Image {
 public:
  // Of memory that the host can use where it lies.
  explicit Image(void* buffer = nullptr);
  Image(Image&& other) noexcept;
  Image& operator=(Image&& other) noexcept;
  ~Image();

  void* host() const { return host_; }
  bool beside() const { return beside_ != nullptr; }
  // Image := buffer and buffer := image, complete on return; nothing to do for a buffer that is its own
  // image. They come after all work that was given to the default stream, and to streams that synchronise
  // with it, of the buffer's context.
  Status load();
  Status store();
  // Its first `bytes` bytes alone, at most all of them.
  Status store_front(std::size_t bytes);
  // These pieces of it alone. Bytes between them are not written, whoever else writes them meanwhile.
  Status store_rows(std::span<const Rows> rows);

 private:
  friend class Gpu;
  struct Beside;
  void* host_;
  std::unique_ptr<Beside> beside_;  // null: the buffer is its own image
};

class Gpu {
 public:
  explicit Gpu(const Settings& settings = {});
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu();
  // Any thread; before what follows is used, but for present().
  void configure(const Settings& settings);

  // Whether buffers may lie on a GPU: the process has loaded CUDA. One load and one branch where it has not.
  // Any thread, as all below.
  bool present() { return watch_.loaded() && ready(); }

  // Only where present(). `invalid_argument`: there is no memory, because it was freed, say.
  Result<Place> place(const void* address);
  // Of `bytes` bytes from `buffer` on; its memory is not set yet.
  Result<Image> image(const void* buffer, std::size_t bytes);
  // Copies from the host to wherever `to` points.
  Status write(void* to, const void* from, std::size_t bytes);
  // For gpu/ alone.
  Cuda& cuda() { return *cuda_.load(std::memory_order_acquire); }

 private:
  bool ready();

  Settings settings_;
  LibraryWatch watch_;
  std::mutex mutex_;
  std::atomic<Cuda*> cuda_{nullptr};  // made once the process has the library
};

class Aside;

// While it lives, the calling thread sets something up, on a Gpu that is present: memory, kernels and work on
// streams of heddle's own, which are no part of what it may be capturing on another stream.
class SettingUp {
 public:
  explicit SettingUp(Gpu& gpu);
  SettingUp(const SettingUp&) = delete;
  SettingUp& operator=(const SettingUp&) = delete;
  ~SettingUp();

 private:
  std::unique_ptr<Aside> aside_;
};

}  // namespace heddle::gpu
