// The command line of all benchmarks: OSU Micro-Benchmarks' options, and our own as long options.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::bench {

enum class Kind {
  latency,
  bandwidth,
  bidirectional,
  allreduce,
  reduce,
  bcast,
  allgather,
  barrier,
  iallreduce,
  ibcast
};
constexpr bool reduces(Kind kind) {
  return kind == Kind::allreduce || kind == Kind::reduce || kind == Kind::iallreduce;
}

// Where buffers lie: in the host's memory, a GPU's, or one that host and GPU share.
enum class Place { host, cuda, managed };
const char* name_of(Place place);  // "cuda", as on the command line
// The other way round; false, and nothing changed, where there is no such place.
bool parse_place(std::string_view text, Place& place);
// What heddle is compared with: nothing, the host MPI, or copies to the host around a collective there.
enum class Versus { nothing, mpi, staged };

enum class Dtype { int8, int32, float32, float64 };
std::size_t size_of(Dtype dtype);
const char* mpi_name(Dtype dtype);  // "MPI_FLOAT"

constexpr std::size_t kUsualMemory = std::size_t{256} << 20;
constexpr std::size_t kMostBuffers = 63;  // of each kind in as much memory

struct Options {
  Kind kind = Kind::allreduce;
  std::size_t min_bytes = 0;
  std::size_t max_bytes = 0;
  std::optional<long> iterations;  // timed calls for each size; unset: as many as the time allows
  std::optional<long> warmup;      // untimed calls before them
  Dtype dtype = Dtype::int8;
  bool full = false;
  bool validate = false;
  bool native = false;
  bool alloc_mem = false;  // buffers from MPI_Alloc_mem, or heddle_alloc where its own API is measured
  Versus versus = Versus::nothing;
  Place place = Place::host;
  bool warm_buffers = false;
  int window = 64;                    // messages in flight in the bandwidth tests
  int tests = 0;                      // of non-blocking collectives: looks at the request while computing
  bool fixed_root = false;            // of --vs: rank 0 alone, as in many programs
  int rounds = 41;                    // of --vs: blocks of each side
  double max_seconds = 1.0;           // for each size and each side
  bool in_place = false;              // what is sent lies where the sum, or its part of the result, goes
  std::size_t memory = kUsualMemory;  // for message buffers, in bytes, on each rank
  std::string memory_given;           // as the command line has it; empty: as much as it takes
  std::size_t most_buffers = kMostBuffers;  // of each kind
  std::string json;

  bool reduces() const { return bench::reduces(kind); }
  bool compares() const { return versus != Versus::nothing; }
  bool overlaps() const { return kind == Kind::iallreduce || kind == Kind::ibcast; }
  bool collective() const {
    return reduces() || kind == Kind::bcast || kind == Kind::allgather || kind == Kind::ibcast ||
           kind == Kind::barrier;
  }
  bool has_root() const { return kind == Kind::bcast || kind == Kind::ibcast || kind == Kind::reduce; }
  bool has_messages() const { return kind != Kind::barrier; }
  // Of buffers to send and to receive; a bcast's are both, and those of what is done in place.
  std::size_t pools() const {
    return ((reduces() || kind == Kind::allgather) && !in_place) || !collective() ? 2 : 1;
  }
  // How long a buffer is that `bytes` bytes are sent from, and one that what comes of it is received in: of
  // all `ranks`, in an allgather. 0 where there are none to receive in.
  std::size_t send_bytes(std::size_t bytes, int ranks) const;
  std::size_t receive_bytes(std::size_t bytes, int ranks) const;
  // Message sizes in bytes: from min_bytes, doubling, to max_bytes. A barrier's is 0.
  std::vector<std::size_t> sizes() const;
};

const char* program_name(Kind kind);

// What the command line asks for: to run, or to print `text` and exit with `code`.
struct Parsed {
  bool run = false;
  int code = 0;
  std::string text;
  Options options;
};
Parsed parse_options(Kind kind, int argc, const char* const* argv);

// The least memory for message buffers in a job of so many ranks.
std::size_t least_memory(const Options& options, int ranks);
// Where the command line does not say how much memory there is for them, it is that at least. The sentence
// that says so where it does, and that is less; else empty.
std::string fit_memory(Options& options, int ranks);

// A whole number above 0, with an optional suffix K, M or G for powers of 1024; false if it is not.
bool parse_positive(std::string_view text, std::size_t& number);

// "MIN:MAX", "MIN:" or "MAX" with an optional suffix K, M or G for powers of 1024. Leaves what is not named
// as it is; false if the text is none of these or MIN > MAX.
bool parse_range(const std::string& text, std::size_t& min_bytes, std::size_t& max_bytes);

}  // namespace heddle::bench
