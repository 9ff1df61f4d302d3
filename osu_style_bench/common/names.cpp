// What options' values are called, and how long elements are.
#include "common/options.hpp"

namespace heddle::bench {

std::size_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::int8:
      return 1;
    case Dtype::int32:
    case Dtype::float32:
      return 4;
    case Dtype::float64:
      return 8;
  }
  return 1;
}

const char* mpi_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::int8:
      return "MPI_CHAR";
    case Dtype::int32:
      return "MPI_INT";
    case Dtype::float32:
      return "MPI_FLOAT";
    case Dtype::float64:
      return "MPI_DOUBLE";
  }
  return "";
}

const char* name_of(Place place) {
  switch (place) {
    case Place::host:
      return "host";
    case Place::cuda:
      return "cuda";
    case Place::managed:
      return "managed";
  }
  return "";
}

bool parse_place(std::string_view text, Place& place) {
  for (const Place known : {Place::host, Place::cuda, Place::managed}) {
    if (text == name_of(known)) {
      place = known;
      return true;
    }
  }
  return false;
}

const char* program_name(Kind kind) {
  switch (kind) {
    case Kind::latency:
      return "heddle_latency";
    case Kind::bandwidth:
      return "heddle_bw";
    case Kind::bidirectional:
      return "heddle_bibw";
    case Kind::allreduce:
      return "heddle_allreduce";
    case Kind::reduce:
      return "heddle_reduce";
    case Kind::allgather:
      return "heddle_allgather";
    case Kind::bcast:
      return "heddle_bcast";
    case Kind::barrier:
      return "heddle_barrier";
    case Kind::iallreduce:
      return "heddle_iallreduce";
    case Kind::ibcast:
      return "heddle_ibcast";
  }
  return "";
}

}  // namespace heddle::bench
