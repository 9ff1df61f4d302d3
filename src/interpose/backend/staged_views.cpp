#include "interpose/backend/staged_views.hpp"

#include <algorithm>
#include <cstdint>
#include <new>
#include <utility>

namespace heddle::backend {
namespace {

// One of a datatype.
struct Element {
  std::size_t bytes = 0;      // of data
  std::ptrdiff_t low = 0;     // where it begins
  std::size_t length = 0;     // and how far it reaches
  std::ptrdiff_t extent = 0;  // where the next one is

  Status look_at(const HostMpi& mpi, MPI_Datatype type) {
    MPI_Count size = 0;
    MPI_Aint unused = 0;
    MPI_Aint apart = 0;
    MPI_Aint lowest = 0;
    MPI_Aint reach = 0;
    if (mpi.Type_size_x(type, &size) != MPI_SUCCESS || size <= 0 ||
        mpi.Type_get_extent(type, &unused, &apart) != MPI_SUCCESS ||
        mpi.Type_get_true_extent(type, &lowest, &reach) != MPI_SUCCESS)
      return Status(Code::system, "the host MPI does not say how large a datatype is");
    *this = {static_cast<std::size_t>(size), lowest, static_cast<std::size_t>(reach), apart};
    return {};
  }

  // Where its first `count` bytes of data lie, from where it begins: the host finds that, as it found it for
  // the data.
  Status find_runs(const Packing& packing, MPI_Datatype type, std::size_t count,
                   std::vector<gpu::Rows>* runs) const {
    std::vector<unsigned char> marks(length);
    std::vector<unsigned char> data(bytes);
    std::fill_n(data.begin(), static_cast<std::ptrdiff_t>(count), static_cast<unsigned char>(1));
    void* const to = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(marks.data()) -
                                             static_cast<std::uintptr_t>(low));
    if (bytes > packing.most_bytes() || !packing.unpack(data.data(), bytes, to, 1, type))
      return Status(Code::system, "MPI_Unpack does not say where the data of a datatype lies");
    for (std::size_t at = 0; at < length;) {
      std::size_t end = at;
      while (end < length && marks[end] != 0)
        ++end;
      if (end > at) runs->push_back({at, end - at, end - at, 1});
      at = end + 1;
    }
    return {};
  }
};

// Those runs, so many bytes further on, of which some may be as far apart from each other.
void join_rows(const std::vector<gpu::Rows>& runs, std::ptrdiff_t begin, std::vector<gpu::Rows>* rows) {
  gpu::Rows open{0, 0, 0, 0};
  for (const gpu::Rows& run : runs) {
    const std::size_t at = static_cast<std::size_t>(begin) + run.begin;
    if (open.height == 1 && run.width == open.width) open.pitch = at - open.begin;
    if (run.width == open.width && at == open.begin + open.height * open.pitch) {
      ++open.height;
      continue;
    }
    if (open.height > 0) rows->push_back(open);
    open = {at, run.width, run.width, 1};
  }
  if (open.height > 0) rows->push_back(open);
}

}  // namespace

// ---- What is written

// Without its attributes, whose callbacks are the program's.
KeptType::KeptType(const HostMpi& mpi, MPI_Datatype type) : mpi_(&mpi) {
  if (mpi.Type_contiguous(1, type, &type_) != MPI_SUCCESS || mpi.Type_commit(&type_) != MPI_SUCCESS)
    type_ = MPI_DATATYPE_NULL;
}

KeptType::KeptType(KeptType&& other) noexcept
    : mpi_(other.mpi_), type_(std::exchange(other.type_, MPI_DATATYPE_NULL)) {}

KeptType::~KeptType() {
  if (type_ != MPI_DATATYPE_NULL) (void)mpi_->Type_free(&type_);
}

Status StagedViews::view_written(DeviceBuffers& buffers, const HostMpi& mpi, void* buffer, const Span& span,
                                 const std::vector<StagedPart>& parts) {
  HEDDLE_TRY(buffers.view(buffer, span, &written));
  span_ = span;
  if (!written.beside() || !span.has_gaps) return {};
  parts_.reserve(parts.size());
  for (const StagedPart& part : parts) {
    parts_.push_back({part.begin, part.count, KeptType(mpi, part.type)});
    if (parts_.back().type.get() == MPI_DATATYPE_NULL)
      return Status(Code::out_of_memory, "the host MPI has no room for another datatype");
  }
  return {};
}

Status StagedViews::view_written(DeviceBuffers& buffers, const HostMpi& mpi, void* buffer, std::size_t count,
                                 MPI_Datatype type) {
  Span span;
  if (!buffers.span_of(buffer, count, type, &span)) span = {};
  return view_written(buffers, mpi, buffer, span, {{0, count, type}});
}

Status StagedViews::load() {
  HEDDLE_TRY(read.load());
  return counts ? written.load() : Status();
}

Status StagedViews::store(const HostMpi& mpi, const Packing& packing, const MPI_Status& status) {
  if (!written.beside()) return {};
  std::size_t bytes = SIZE_MAX;
  if (is_message) {
    MPI_Count came = 0;
    if (mpi.Get_elements_x(&status, MPI_BYTE, &came) != MPI_SUCCESS || came < 0)
      return Status(Code::system, "MPI_Get_elements_x does not say how long the message was");
    bytes = static_cast<std::size_t>(came);
  }
  if (span_.has_gaps) return store_elements(mpi, packing, bytes);
  return written.store_front(std::min(span_.bytes, bytes));
}

// At most so many bytes, in the elements' order.
Status StagedViews::store_elements(const HostMpi& mpi, const Packing& packing, std::size_t most_bytes) try {
  std::vector<gpu::Rows> rows;
  for (const Part& part : parts_)
    HEDDLE_TRY(add_rows(part, mpi, packing, &most_bytes, &rows));
  return written.store_rows(rows);
} catch (const std::bad_alloc&) {
  return Status(Code::out_of_memory, "no memory to find the elements of a datatype");
}

Status StagedViews::add_rows(const Part& part, const HostMpi& mpi, const Packing& packing,
                             std::size_t* most_bytes, std::vector<gpu::Rows>* rows) const {
  Element element{};
  HEDDLE_TRY(element.look_at(mpi, part.type.get()));
  const std::size_t whole = std::min(part.count, *most_bytes / element.bytes);
  const std::size_t rest = whole < part.count ? *most_bytes % element.bytes : 0;
  *most_bytes -= whole * element.bytes + rest;
  const std::ptrdiff_t begin = part.begin + element.low - span_.begin;
  std::vector<gpu::Rows> runs;
  HEDDLE_TRY(element.find_runs(packing, part.type.get(), element.bytes, &runs));
  const auto extent = static_cast<std::size_t>(element.extent);
  const bool is_apart =
      element.extent > 0 &&
      std::all_of(runs.begin(), runs.end(), [&](const gpu::Rows& run) { return run.width <= extent; });
  if (whole > 1 && is_apart) {
    // One run of all elements after the other.
    for (const gpu::Rows& run : runs) {
      const std::size_t at = static_cast<std::size_t>(begin) + run.begin;
      rows->push_back(run.width < extent ? gpu::Rows{at, run.width, extent, whole}
                                         : gpu::Rows{at, extent * whole, extent * whole, 1});
    }
  } else {
    for (std::size_t i = 0; i < whole; ++i)
      join_rows(runs, begin + static_cast<std::ptrdiff_t>(i) * element.extent, rows);
  }
  if (rest == 0) return {};
  runs.clear();
  HEDDLE_TRY(element.find_runs(packing, part.type.get(), rest, &runs));
  join_rows(runs, begin + static_cast<std::ptrdiff_t>(whole) * element.extent, rows);
  return {};
}

// ---- Both of a sum

Status StagedSum::load_output() {
  if (has_output_) return {};
  HEDDLE_TRY(views_.view_written(buffers_, mpi_, out_, count_, type_));
  if (in_place() || in_ == out_) HEDDLE_TRY(views_.written.load());
  has_output_ = true;
  return {};
}

Status StagedSum::load_input() {
  if (in_place() || in_ == out_) return load_output();
  if (has_input_) return {};
  HEDDLE_TRY(buffers_.view(const_cast<void*>(in_), count_, type_, &views_.read));
  HEDDLE_TRY(views_.read.load());
  has_input_ = true;
  return {};
}

const void* StagedSum::input() const {
  if (in_place()) return MPI_IN_PLACE;
  return in_ == out_ ? views_.written.buffer() : views_.read.buffer();  // a mistake, that the host reports
}

}  // namespace heddle::backend
