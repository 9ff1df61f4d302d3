// What one call of the host's reads and writes, with images where that lies on a GPU. Elements alone are
// written back: what lies between them is the program's, which may use it meanwhile.
#pragma once

#include <cstddef>
#include <vector>

#include "interpose/backend/device_buffers.hpp"
#include "interpose/backend/host_mpi.hpp"
#include "interpose/backend/packing.hpp"

namespace heddle::backend {

// Elements that begin so many bytes after a buffer.
struct StagedPart {
  std::ptrdiff_t begin = 0;
  std::size_t count = 0;
  MPI_Datatype type = MPI_DATATYPE_NULL;
};

// A datatype of one's own that is like another, which the program may free meanwhile.
class KeptType {
 public:
  KeptType(const HostMpi& mpi, MPI_Datatype type);
  KeptType(KeptType&& other) noexcept;
  KeptType& operator=(KeptType&&) = delete;
  ~KeptType();
  MPI_Datatype get() const { return type_; }

 private:
  const HostMpi* mpi_;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;  // null: there was no more room for one
};

// What one call reads and writes, with images where that lies on a GPU.
class StagedViews {
 public:
  HostView read;
  HostView written;
  bool is_message = false;  // what is written may be less
  bool counts = false;      // what is there before the call, where it is written

  bool beside() const { return read.beside() || written.beside(); }
  // What the call reads, as it is now.
  Status load();
  // Makes `written`, a view of these elements; with what is in them when it has been loaded. A failure is the
  // caller's to report.
  Status view_written(DeviceBuffers& buffers, const HostMpi& mpi, void* buffer, const Span& span,
                      const std::vector<StagedPart>& parts);
  // The same of `count` elements of `type`, or the buffer as it is where the host is to judge it.
  Status view_written(DeviceBuffers& buffers, const HostMpi& mpi, void* buffer, std::size_t count,
                      MPI_Datatype type);
  // What the host has written: these elements, and nothing between them. `status` is a message's.
  Status store(const HostMpi& mpi, const Packing& packing, const MPI_Status& status = {});

 private:
  struct Part {
    std::ptrdiff_t begin;
    std::size_t count;
    KeptType type;
  };
  Status store_elements(const HostMpi& mpi, const Packing& packing, std::size_t most_bytes);
  Status add_rows(const Part& part, const HostMpi& mpi, const Packing& packing, std::size_t* most_bytes,
                  std::vector<gpu::Rows>* rows) const;

  Span span_;
  std::vector<Part> parts_;  // where there are gaps
};

// The two buffers of an MPI_Allreduce, which may be in place. What the host is to see gets its view when it
// is first wanted.
class StagedSum {
 public:
  StagedSum(DeviceBuffers& buffers, const HostMpi& mpi, const Packing& packing, const void* in, void* out,
            std::size_t count, MPI_Datatype type)
      : buffers_(buffers), mpi_(mpi), packing_(packing), in_(in), out_(out), count_(count), type_(type) {}
  StagedSum(const StagedSum&) = delete;
  StagedSum& operator=(const StagedSum&) = delete;
  ~StagedSum() = default;

  const void* in() const { return in_; }
  void* out() const { return out_; }
  std::size_t count() const { return count_; }
  MPI_Datatype type() const { return type_; }
  bool in_place() const { return in_ == MPI_IN_PLACE; }
  // Where the input begins.
  const void* source() const { return in_place() ? out_ : in_; }

  // With what is in it. Once; a failure is the caller's to report.
  Status load_input();
  Status load_output();
  // After these: as the rest of the call is to see them.
  const void* input() const;
  void* output() const { return views_.written.buffer(); }
  bool beside() const { return views_.written.beside() && (in_place() || views_.read.beside()); }
  Status store() { return views_.store(mpi_, packing_); }

 private:
  DeviceBuffers& buffers_;
  const HostMpi& mpi_;
  const Packing& packing_;
  const void* const in_;
  void* const out_;
  const std::size_t count_;
  const MPI_Datatype type_;
  bool has_input_ = false;
  bool has_output_ = false;
  StagedViews views_;
};

}  // namespace heddle::backend
