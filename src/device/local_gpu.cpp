#include "device/local_gpu.hpp"

#include <cstring>
#include <utility>

#include "base/round_up.hpp"
#include "device/device_codes.hpp"
#include "sparse/convert.hpp"

namespace heddle {
namespace {

// The link's pieces of memory.
constexpr std::size_t kResult = 0;
constexpr std::size_t kTaken = 1;

constexpr std::size_t kSampleBytes = 64;

// Of values behind indices.
constexpr std::size_t kAlignment = 16;

bool is_wide(std::size_t dimension) {
  return std::uint64_t{dimension} > std::uint64_t{1} << 32;
}
std::size_t values_at(std::size_t count, bool wide) {
  return round_up(count * (wide ? 8 : 4), kAlignment);
}

}  // namespace

Status LocalLink::finish(Status given) {
  Status waited = link->wait();
  if (given.ok()) given = std::move(waited);
  if (!given.ok()) failed = true;
  return given;
}

Result<SparseView> EntriesImage::load(gpu::Gpu& gpu, const gpu::Entries& entries, DType type,
                                      std::size_t dimension) {
  SparseView view{dimension, entries.count, entries.wide ? IndexType::u64 : IndexType::u32,
                  type,      nullptr,       nullptr};
  Result<gpu::Image> indices = gpu.image(entries.indices, entries.count * index_size(view.index_type));
  if (!indices.ok()) return indices.status();
  Result<gpu::Image> values = gpu.image(entries.values, entries.count * dtype_size(type));
  if (!values.ok()) return values.status();
  indices_ = std::move(indices).value();
  values_ = std::move(values).value();
  HEDDLE_TRY(indices_.load());
  HEDDLE_TRY(values_.load());
  view.indices = indices_.host();
  view.values = values_.host();
  return view;
}

// ---- The largest entries

Result<SparseView> LocalLargest::take() {
  Status given = at_.link->after_earlier_work();
  if (given.ok()) given = give_largest(*at_.link, *at_.sparse, job_);
  if (given.ok()) given = at_.sparse->tell();
  HEDDLE_TRY(at_.finish(std::move(given)));
  Result<SparseView> taken = entries_.load(gpu_, at_.sparse->largest(), DType::f32, job_.n);
  if (!taken.ok()) at_.failed = true;
  if (taken.ok()) taken_ = taken.value();
  return taken;
}

Status LocalLargest::put_back() {
  if (job_.residual == nullptr || taken_.count == 0) return {};
  const Result<Residual*> residual = job_.residual->on_host();
  if (!residual.ok()) return residual.status();
  return residual.value()->put_back(taken_);
}

// ---- A vector

Result<double> LocalVector::sampled_density(std::size_t samples) {
  Result<double> density = sample(samples);
  if (!density.ok()) {
    const Result<void*> host = load();
    if (!host.ok()) return host.status();
    density = heddle::sampled_density(host.value(), count_, type_, samples);
  }
  density_ = density.value();
  return density;
}

// All pieces in one copy: a copy for each would take longer than all of a vector of some MiB. The vector is
// so long (LocalGpu::kFrom) that they are equally far apart.
Result<double> LocalVector::sample(std::size_t samples) {
  if (at_.samples == nullptr) {
    const Result<std::byte*> pinned = at_.link->pin(samples * kSampleBytes);
    if (!pinned.ok()) return pinned.status();
    at_.samples = pinned.value();
  }
  const std::size_t width = dtype_size(type_);
  const SampledPiece piece = sampled_piece(count_, type_, samples, 0);
  const std::size_t apart = sampled_piece(count_, type_, samples, 1).first - piece.first;
  const std::size_t seen = samples * piece.count;
  Status given = at_.link->after_earlier_work();
  if (given.ok())
    given =
        at_.link->pieces_to_host(at_.samples, static_cast<const std::byte*>(vector_) + piece.first * width,
                                 piece.count * width, apart * width, samples);
  HEDDLE_TRY(at_.finish(std::move(given)));
  return static_cast<double>(count_nonzero(at_.samples, seen, type_)) / static_cast<double>(seen);
}

Result<SparseView> LocalVector::entries() {
  const Result<gpu::Entries> found = select();
  if (!found.ok()) return found.status();
  return entries_.load(gpu_, found.value(), type_, count_);
}

// With room by what was sampled, and once more where that was too little.
Result<gpu::Entries> LocalVector::select() {
  HEDDLE_TRY(at_.sparse->reserve_merges());
  const bool wide = is_wide(count_);
  auto capacity = static_cast<std::size_t>(1.25 * density_ * static_cast<double>(count_)) + 1024;
  for (;;) {
    const std::size_t behind = values_at(capacity, wide);
    const std::size_t total = behind + capacity * dtype_size(type_);
    if (total > bytes()) return Status(Code::unsupported, "the entries take more than the vector");
    const Result<std::byte*> room = at_.sparse->piece(kTaken, total);
    if (!room.ok()) return room.status();
    HEDDLE_TRY(select({room.value(), room.value() + behind, capacity, wide}));
    const std::size_t found = at_.sparse->taken();
    if (found <= capacity) return gpu::Entries{room.value(), room.value() + behind, found, wide};
    capacity = found;
  }
}

Status LocalVector::select(const gpu::Room& to) {
  Status given = at_.link->after_earlier_work();
  if (given.ok()) given = at_.sparse->take_nonzero(type_, vector_, count_, to);
  if (given.ok()) given = at_.sparse->tell();
  return at_.finish(std::move(given));
}

Result<void*> LocalVector::image() {
  if (!image_.beside()) {
    Result<gpu::Image> made = gpu_.image(vector_, bytes());
    if (!made.ok()) return made.status();
    image_ = std::move(made).value();
  }
  return image_.host();
}

Result<void*> LocalVector::load() {
  Result<void*> host = image();
  if (host.ok()) HEDDLE_TRY(image_.load());
  return host;
}

void LocalVector::put(std::span<const SparseView> parts, bool keeps) {
  if (put_by_gpu(parts, keeps).ok()) return;
  const Result<void*> host = keeps ? load() : image();
  outcome_ = host.status();
  if (!host.ok()) return;
  scatter(parts, host.value(), bytes(), keeps);
  store();
}

Status LocalVector::put_by_gpu(std::span<const SparseView> parts, bool keeps) {
  const Result<gpu::Entries> entries = upload(parts);
  if (!entries.ok()) return entries.status();
  return at_.finish(give(entries.value(), keeps));
}

// All parts in one list there, by way of its image.
Result<gpu::Entries> LocalVector::upload(std::span<const SparseView> parts) {
  gpu::Entries all;
  for (const SparseView& part : parts) {
    all.count += part.count;
    all.wide = part.index_type == IndexType::u64;
  }
  if (all.count == 0) return all;
  const std::size_t behind = values_at(all.count, all.wide);
  const std::size_t total = behind + all.count * dtype_size(type_);
  if (total > bytes()) return Status(Code::unsupported, "the entries take more than the vector");
  const Result<std::byte*> room = at_.sparse->piece(kResult, total);
  if (!room.ok()) return room.status();
  Result<gpu::Image> image = gpu_.image(room.value(), total);
  if (!image.ok()) return image.status();
  auto* indices = static_cast<std::byte*>(image->host());
  auto* values = indices + behind;
  for (const SparseView& part : parts) {
    if (part.count == 0) continue;
    std::memcpy(indices, part.indices, part.count * index_size(part.index_type));
    std::memcpy(values, part.values, part.count * dtype_size(type_));
    indices += part.count * index_size(part.index_type);
    values += part.count * dtype_size(type_);
  }
  HEDDLE_TRY(image->store());
  all.indices = room.value();
  all.values = room.value() + behind;
  return all;
}

Status LocalVector::give(const gpu::Entries& entries, bool keeps) {
  HEDDLE_TRY(at_.link->after_earlier_work());
  if (!keeps) HEDDLE_TRY(at_.sparse->clear(vector_, bytes()));
  return entries.count > 0 ? at_.sparse->set(type_, entries, vector_, count_) : Status();
}

Status LocalVector::reserve_codes(CodedPlan plan, const CodecSettings& how) {
  if (!plan.leaves_codes || plan.bytes > bytes())
    return Status(Code::unsupported, "the result does not come as codes, or these take more than the vector");
  const Result<std::byte*> room = at_.sparse->piece(kResult, plan.bytes);
  if (!room.ok()) return room.status();
  Result<gpu::Image> image = gpu_.image(room.value(), plan.bytes);
  if (!image.ok()) return image.status();
  codes_ = room.value();
  coded_ = std::move(image).value();
  plan_ = std::move(plan);
  how_ = how;
  return {};
}

void LocalVector::put_codes() {
  if (!decode_by_gpu().ok()) outcome_ = decode_by_host();
}

Status LocalVector::decode_by_gpu() {
  // What the context's default stream was given before is done with this.
  Status given = coded_.store();
  for (const CodedPlan::Chunk& chunk : plan_.chunks) {
    const void* const codes[] = {codes_ + chunk.at};
    if (given.ok())
      given = at_.sparse->dequantise(quantiser_of(how_), codes, chunk.values.count,
                                     static_cast<float*>(vector_) + chunk.values.first);
  }
  if (given.ok()) given = at_.sparse->tell();
  HEDDLE_TRY(at_.finish(std::move(given)));
  // For good: the link says so from now on. The host says what is wrong.
  if (!at_.sparse->bad_codes()) return {};
  at_.failed = true;
  return Status(Code::internal, "codes that no encoder writes");
}

Status LocalVector::decode_by_host() {
  const Result<void*> host = image();
  if (!host.ok()) return host.status();
  for (const CodedPlan::Chunk& chunk : plan_.chunks) {
    const Status decoded = decode(how_, {codes() + chunk.at, chunk.bytes},
                                  static_cast<float*>(host.value()) + chunk.values.first, chunk.values.count);
    if (!decoded.ok()) return Status(Code::internal, "in the result: " + decoded.message());
  }
  return image_.store();
}

// ---- What this rank's GPU can do

std::unique_ptr<LocalLargest> LocalGpu::largest(gpu::Gpu& gpu, const DeviceLargest& job) {
  const std::size_t bytes = job.n * sizeof(float);
  const std::size_t entries = values_at(job.k, is_wide(job.n)) + job.k * sizeof(float);
  if (job.k == 0 || entries > bytes) return nullptr;
  LocalLink* const at = reach(gpu, job.in, bytes, sizeof(float));
  if (at == nullptr || !at->sparse->reserve(job.n, job.k).ok()) return nullptr;
  LargestJob mine{job.in, nullptr, job.n, job.k, job.residual};
  if (job.residual != nullptr) {
    const Result<float*> left_out = job.residual->on_gpu(*at->sparse, *at->link);
    if (!left_out.ok()) return nullptr;
    mine.left_out = left_out.value();
  }
  return std::make_unique<LocalLargest>(gpu, *at, mine);
}

std::unique_ptr<LocalVector> LocalGpu::vector(gpu::Gpu& gpu, void* vector, std::size_t count, DType type) {
  if (!is_sparse_value(type)) return nullptr;
  LocalLink* const at = reach(gpu, vector, count * dtype_size(type), dtype_size(type));
  return at != nullptr ? std::make_unique<LocalVector>(gpu, *at, vector, count, type) : nullptr;
}

// What is wrong with the vector an image will say.
LocalLink* LocalGpu::reach(gpu::Gpu& gpu, const void* vector, std::size_t bytes, std::size_t element) {
  if (off_ || bytes < kFrom || !gpu.present()) return nullptr;
  if (reinterpret_cast<std::uintptr_t>(vector) % element != 0) return nullptr;
  std::erase_if(links_,
                [](const std::unique_ptr<LocalLink>& one) { return one->failed || !one->link->is_there(); });
  for (const std::unique_ptr<LocalLink>& one : links_) {
    const Result<bool> here = one->link->holds(vector, bytes);
    if (!here.ok()) return nullptr;
    if (here.value()) return one.get();
  }
  const Result<gpu::Place> place = gpu.place(vector);
  if (!place.ok() || !gpu::needs_image(place->kind)) return nullptr;
  LocalLink* const made = make(gpu, place.value());
  const Result<bool> here = made != nullptr ? made->link->holds(vector, bytes) : Result<bool>(false);
  return here.ok() && here.value() ? made : nullptr;
}

LocalLink* LocalGpu::make(gpu::Gpu& gpu, const gpu::Place& place) {
  auto made = std::make_unique<LocalLink>();
  Result<std::unique_ptr<gpu::Link>> link = gpu::make_link(gpu, place);
  Status status = link.status();
  if (link.ok()) {
    made->link = std::move(link).value();
    Result<std::unique_ptr<gpu::SparseLink>> sparse = gpu::make_sparse_link(*made->link);
    status = sparse.status();
    if (sparse.ok()) made->sparse = std::move(sparse).value();
  }
  off_ = status.code() == Code::unsupported;
  if (off_)
    log_.info("sums of entries of vectors on a GPU go on by way of copies on the host: " + status.message());
  if (!status.ok()) return nullptr;
  links_.push_back(std::move(made));
  return links_.back().get();
}

}  // namespace heddle
