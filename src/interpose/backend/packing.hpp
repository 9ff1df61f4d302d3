// Bcast of derived datatypes as packed bytes.
//
// MPI lets ranks describe one message with different datatypes of one signature, so what a rank does may
// depend on the number of packed bytes and on nothing else. MPICH packs homogeneous data as the raw bytes in
// typemap order, the same that a basic type has in memory; check_format() proves that at run time.
#pragma once

#include <cstddef>
#include <optional>

#include "interpose/backend/blocks.hpp"
#include "interpose/backend/host_mpi.hpp"
#include "interpose/backend/host_self.hpp"
#include "interpose/backend/strided.hpp"

namespace heddle::backend {

class Packing {
 public:
  Packing(const HostMpi& mpi, const HostSelf& self) : mpi_(&mpi), self_(&self) {}

  // Whether the host packs as above; if not, derived datatypes cannot be served. After self.open().
  bool check_format() const;

  struct Layout {
    std::size_t element_bytes = 0;  // packed
    bool contiguous = false;        // the packed bytes are the memory at `buffer`, in order
  };
  // False when the host must see the arguments: a wrong handle, an uncommitted type.
  bool inspect(const void* buffer, MPI_Datatype type, Layout* out) const;

  // The same of what may have no buffer, which matters where there are bytes: `missing`.
  bool look_at(const void* buffer, MPI_Datatype type, Layout* out, bool* missing) const;

  // `bytes` is count * element_bytes. False when the host reports an error.
  bool pack(const void* buffer, std::size_t count, MPI_Datatype type, void* packed, std::size_t bytes) const;
  bool unpack(const void* packed, std::size_t bytes, void* buffer, std::size_t count,
              MPI_Datatype type) const;
  // Where all of that lies, if that is runs in a few loops; not from MPI_BOTTOM on. Of a type that inspect()
  // has found good.
  std::optional<Strided> loops_of(const void* buffer, std::size_t count, MPI_Datatype type) const;
  // Where one element of a type that lists blocks of memory has them.
  std::optional<Blocks> blocks_of(MPI_Datatype type) const;
  // The most packed bytes that pack() and unpack() can do; the same on all ranks of a job.
  std::size_t most_bytes() const;

 private:
  class Based;  // a buffer and datatype without MPI_BOTTOM
  // What a datatype was made by and of. Types made with large counts the host tells about by the function for
  // these alone.
  struct Envelope {
    MPI_Count integers = 0;
    MPI_Count addresses = 0;
    MPI_Count large_counts = 0;
    MPI_Count types = 0;
    int combiner = MPI_COMBINER_NAMED;
  };
  bool envelope_of(MPI_Datatype type, Envelope* out) const;
  void free_content(MPI_Datatype type) const;
  bool is_contiguous(MPI_Datatype type, int depth) const;
  struct Made;
  static bool repeat_subarray(const Made& made, MPI_Aint extent, Strided* loops);
  bool made_of(MPI_Datatype type, Made* out) const;
  static constexpr int kDeepest = 4;  // a vector, resized, of vectors, resized
  std::optional<Strided> loops_of(MPI_Datatype type, int depth) const;
  MPI_Comm comm() const;

  const HostMpi* mpi_;
  const HostSelf* self_;
};

}  // namespace heddle::backend
