#include "device/device_entries.hpp"

#include <algorithm>
#include <cstring>

namespace heddle {
namespace {

// Of an index and a value, whatever their types.
constexpr std::size_t kWidest = 16;
// Where the values of a piece begin, a multiple of this many entries is in front of them.
constexpr std::size_t kGrain = 32;

std::size_t index_bytes(const gpu::Entries& entries) {
  return entries.count * gpu::index_bytes(entries.wide);
}

}  // namespace

bool EntriesWork::has_room(const ScratchLayout& layout) {
  return layout.half >= kWidest * kGrain;
}

EntriesWork::EntriesWork(const EntriesWorker& worker, DType type, std::uint64_t asked)
    : AskedWork(asked, kPlaceWords * static_cast<std::size_t>(worker.worker.size)),
      worker_(worker),
      type_(type),
      room_(worker.direct ? SIZE_MAX
                          : std::max(kGrain, worker.worker.layout.half / kWidest / kGrain * kGrain)) {}

// ---- What the ranks tell each other

std::span<std::uint64_t> EntriesWork::words() {
  if (lead_ > 0) return AskedWork::words();
  tell_place();
  return all_words();
}

std::span<std::uint64_t> EntriesWork::later_words(std::size_t k) {
  if (k != lead_) return {};
  tell_place();
  return places();
}

void EntriesWork::tell_place() {
  // A rank that could not make them has none; the meeting tells why.
  own_.count = own_.indices != nullptr ? number() : 0;
  tell_broken(own_.indices != nullptr && broken());
  const gpu::Room room = worker_.direct ? room_given() : gpu::Room();
  const Place mine{worker_.direct ? word(own_.indices) : 0,
                   worker_.direct ? word(own_.values) : 0,
                   own_.count,
                   own_.wide ? 1U : 0U,
                   word(room.indices),
                   word(room.values),
                   room.capacity,
                   room.wide ? 1U : 0U};
  const auto rank = static_cast<std::size_t>(worker_.worker.rank);
  std::memcpy(&places()[kPlaceWords * rank], &mine, sizeof mine);
}

EntriesWork::Place EntriesWork::place_of(int rank) const {
  Place place;
  std::memcpy(static_cast<void*>(&place), &places()[kPlaceWords * static_cast<std::size_t>(rank)],
              sizeof place);
  return place;
}

std::uint64_t EntriesWork::total() const {
  std::uint64_t total = 0;
  for (int r = 0; r < worker_.worker.size; ++r)
    total += place_of(r).count;
  return total;
}

// Before the ranks know how many entries there are nobody asks.
std::size_t EntriesWork::pieces_of(int rank) const {
  const std::uint64_t count = place_of(rank).count;
  return static_cast<std::size_t>(count / room_ + (count % room_ != 0 ? 1 : 0));
}

// The first step takes one piece of everybody's, and each later one another.
std::size_t EntriesWork::steps() const {
  std::size_t steps = lead_ + 1;
  for (int r = 0; r < worker_.worker.size; ++r)
    steps += std::max<std::size_t>(pieces_of(r), 1) - 1;
  return steps;
}

// ---- Steps

Status EntriesWork::first() {
  return lead_ == 0 ? begin() : Status();
}

Status EntriesWork::step(std::size_t k) {
  if (k < lead_) return begin();
  if (k == lead_) {
    // The default stream is one for ranks that share a context: this is after what any of them has given it.
    if (worker_.direct && works()) HEDDLE_TRY(worker_.worker.link->after_earlier_work());
    HEDDLE_TRY(open());
  }
  return take();
}

// What lies where the others reach it, and is taken as it is, needs no work.
Status EntriesWork::begin() {
  if (makes() || !worker_.direct) HEDDLE_TRY(worker_.worker.link->after_earlier_work());
  const Result<gpu::Entries> made = make();
  if (!made.ok()) return made.status();
  own_ = made.value();
  HEDDLE_TRY(give(0));
  return makes() ? worker_.sparse->tell() : Status();
}

// Halves take turns, as in device_work.cpp.
std::byte* EntriesWork::half(int rank, std::size_t piece) const {
  return worker_.worker.link->scratch(rank) + piece % 2 * worker_.worker.layout.half;
}

std::size_t EntriesWork::count_in(std::size_t all, std::size_t piece) const {
  return std::min(all - std::min(all, piece * room_), room_);
}

gpu::Entries EntriesWork::part(const gpu::Entries& all, std::size_t piece) const {
  const std::size_t begin = std::min(all.count, piece * room_);
  gpu::Entries entries = all;
  entries.indices = static_cast<const std::byte*>(all.indices) + begin * gpu::index_bytes(all.wide);
  entries.values = static_cast<const std::byte*>(all.values) + begin * dtype_size(type_);
  entries.count = count_in(all.count, piece);
  return entries;
}

Status EntriesWork::give(std::size_t piece) {
  if (worker_.direct) return {};
  const gpu::Entries mine = part(own_, piece);
  std::byte* const to = half(worker_.worker.rank, piece);
  HEDDLE_TRY(worker_.worker.link->copy(to, mine.indices, index_bytes(mine)));
  return worker_.worker.link->copy(to + room_ * sizeof(std::uint64_t), mine.values,
                                   mine.count * dtype_size(type_));
}

gpu::Entries EntriesWork::entries_of(int rank) const {
  const Place place = place_of(rank);
  return {pointer(place.indices), pointer(place.values), place.count, place.wide != 0};
}

gpu::Room EntriesWork::room_of(int rank) const {
  const Place place = place_of(rank);
  return {pointer(place.room_indices), pointer(place.room_values), place.room, place.room_wide != 0};
}

gpu::Entries EntriesWork::given_by(int rank, std::size_t piece) const {
  gpu::Entries entries = entries_of(rank);
  if (worker_.direct) return entries;
  entries.count = count_in(entries.count, piece);
  entries.indices = half(rank, piece);
  entries.values = half(rank, piece) + room_ * sizeof(std::uint64_t);
  return entries;
}

// All that is there, in the order of ranks: of each its first piece is, and then one more after each meeting.
Status EntriesWork::take() {
  for (; taken_from_ < worker_.worker.size; ++taken_from_, taken_ = 0) {
    const gpu::Entries entries = given_by(taken_from_, taken_);
    if (entries.count > 0) HEDDLE_TRY(use(taken_from_, entries, taken_ * room_));
    if (taken_ + 1 >= pieces_of(taken_from_)) continue;
    ++taken_;
    return taken_from_ == worker_.worker.rank ? give(taken_) : Status();
  }
  return close();
}

// ---- Entries

Result<gpu::Entries> EntriesSum::make() {
  HEDDLE_TRY(worker_.sparse->check(in_, dimension_));
  return in_;
}

LargestSum::LargestSum(const EntriesWorker& worker, const LargestJob& job, std::uint64_t asked)
    : DenseSum(worker, DType::f32, job.out, job.n, asked), job_(job) {
  lead_ = 1;
}

Result<gpu::Entries> LargestSum::make() {
  HEDDLE_TRY(give_largest(*worker_.worker.link, *worker_.sparse, job_));
  gpu::Entries entries = worker_.sparse->largest();
  entries.count = job_.k;
  return entries;
}

// From here on the residual on the GPU is what counts: the vector is added to it, and then what is sent taken
// out.
Status give_largest(gpu::Link& link, gpu::SparseLink& sparse, const LargestJob& job) {
  const float* from = job.in;
  if (job.left_out != nullptr) {
    const void* const inputs[] = {job.in, job.left_out};
    void* const outputs[] = {job.left_out};
    job.residual->changes_on_gpu();
    HEDDLE_TRY(link.fold(DType::f32, Op::sum, inputs, outputs, job.n));
    from = job.left_out;
  }
  HEDDLE_TRY(sparse.take_largest(from, job.n, job.k));
  return job.left_out != nullptr ? sparse.forget_largest(job.left_out, job.n) : Status();
}

}  // namespace heddle
