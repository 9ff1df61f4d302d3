// All of gpu/ in a build without CUDA: no buffer lies on a GPU.
#include <cstring>

#include "gpu/device_memory.hpp"
#include "gpu/gpu.hpp"
#include "gpu/link.hpp"
#include "gpu/sparse_link.hpp"
#include "gpu/survey.hpp"

namespace heddle::gpu {

class Cuda {};
class Aside {};
struct Image::Beside {};

const char* kind_name(Kind /*kind*/) {
  return "host";
}

Image::Image(void* buffer) : host_(buffer) {}
Image::Image(Image&& other) noexcept = default;
Image& Image::operator=(Image&& other) noexcept = default;
Image::~Image() = default;
Status Image::load() {
  return {};
}
Status Image::store() {
  return {};
}
Status Image::store_front(std::size_t /*bytes*/) {
  return {};
}
Status Image::store_rows(std::span<const Rows> /*rows*/) {
  return {};
}

Gpu::Gpu(const Settings& /*settings*/) : watch_(nullptr) {}
Gpu::~Gpu() = default;
void Gpu::configure(const Settings& /*settings*/) {}
bool Gpu::ready() {
  return false;
}
Result<Place> Gpu::place(const void* /*address*/) {
  return Place{};
}
Result<Image> Gpu::image(const void* buffer, std::size_t /*bytes*/) {
  return Image(const_cast<void*>(buffer));
}
Status Gpu::write(void* to, const void* from, std::size_t bytes) {
  std::memmove(to, from, bytes);
  return {};
}

SettingUp::SettingUp(Gpu& /*gpu*/) {}
SettingUp::~SettingUp() = default;

Result<std::unique_ptr<Link>> make_link(Gpu& /*gpu*/, const Place& /*place*/) {
  return Status(Code::unsupported, "this heddle was built without CUDA");
}

Result<std::unique_ptr<SparseLink>> make_sparse_link(Link& /*link*/) {
  return Status(Code::unsupported, "this heddle was built without CUDA");
}

std::size_t ExchangeLayout::slot_bytes() const {
  return 0;
}
std::size_t ExchangeLayout::turn_bytes() const {
  return 0;
}
ExchangeLayout ExchangeLayout::of(std::size_t /*room*/, int /*ranks*/, std::size_t /*most*/) {
  return {};
}

std::size_t flag_bytes(int /*size*/) {
  return 0;
}
Result<bool> is_captured(Gpu& /*gpu*/, const Place& /*place*/, Stream /*stream*/) {
  return false;
}

Result<std::unique_ptr<DeviceMemory>> open_device_memory(int /*number*/) {
  return Status(Code::unsupported, "this heddle was built without CUDA");
}

const char* kernel_architectures() {
  return "";
}

Result<Survey> survey() {
  return Status(Code::unsupported, "this heddle was built without CUDA");
}

}  // namespace heddle::gpu
