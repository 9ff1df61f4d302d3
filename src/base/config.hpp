// Every HEDDLE_* variable, parsed once into a value. (Before that the preload library looks at HEDDLE_LOG and
// HEDDLE_ENABLE itself; launchers' variables are read where they are wanted.)
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/port_range.hpp"

namespace heddle {

enum class LogLevel : std::uint8_t { none, error, warn, info, debug };

enum class CheckSetting : std::uint8_t { off, calls, results };  // each does what the one before it does

enum class ProgressThreadSetting : std::uint8_t { off, automatic, spare, always };

struct Config {
  bool enable = true;                   // HEDDLE_ENABLE=0|1: 0 leaves everything to the host MPI
  LogLevel log_level = LogLevel::warn;  // HEDDLE_LOG=none|error|warn|info|debug
  std::string algorithm;  // HEDDLE_ALGORITHM=[allreduce:]NAME[,bcast:NAME]...: forces; empty: as measured, or
                          // by price
  std::string tuning_file;  // HEDDLE_TUNING_FILE=PATH: JSON, overrides the choice by price
  // HEDDLE_TRANSPORTS=LIST: which may be used; of those between nodes that every rank can use the fastest as
  // measured, without measuring the first in the list
  std::string transports = "shm,mpi,tcp,ucx,verbs";
  std::string modules;  // HEDDLE_MODULES=PATH: folder of heddle's own modules; empty: beside the library
  std::string tcp_interfaces;  // HEDDLE_TCP_INTERFACES=LIST: names; empty: all that are up
  PortRange tcp_ports;         // HEDDLE_TCP_PORTS=FIRST-LAST
  std::string tcp_congestion;  // HEDDLE_TCP_CONGESTION=NAME; empty: as the system, but for BBR
  std::string verbs_device;    // HEDDLE_VERBS_DEVICE=NAME[:PORT][,...]; empty: the fastest port that is up
  int verbs_gid = -1;          // HEDDLE_VERBS_GID=INDEX; -1: the best
  // HEDDLE_VERBS_TIMEOUT=SECONDS: a peer whose device acknowledges nothing for this long is gone
  std::chrono::milliseconds verbs_timeout{7000};
  int verbs_traffic_class = 0;  // HEDDLE_VERBS_TRAFFIC_CLASS=BYTE: of the IP header or the routing header
  int verbs_sl = 0;             // HEDDLE_VERBS_SL=LEVEL
  int verbs_pkey = -1;          // HEDDLE_VERBS_PKEY=KEY, without the bit of membership; -1: the port's first
  bool verbs_odp = false;  // HEDDLE_VERBS_ODP=0|1: users' memory by on-demand paging, where the device can
  std::chrono::milliseconds timeout{
      0};  // HEDDLE_TIMEOUT=SECONDS (fractions allowed): a wait fails after this; 0: never
  std::chrono::milliseconds warn_after{
      10'000};                 // HEDDLE_WARN_AFTER=SECONDS: a wait says who is missing after this; 0: never
  std::size_t slot_bytes = 0;  // HEDDLE_SLOT_BYTES=SIZE (K, M): staged pipeline slot; 0: by the caches
  // HEDDLE_SINGLE_COPY=auto|0|1: bcasts of some pages within a node are copied once, by the kernel; nothing:
  // as measured
  std::optional<bool> single_copy;
  int spin = -1;                     // HEDDLE_SPIN=N: polls before yielding; -1: by the cores at hand
  std::string shm_backing = "auto";  // HEDDLE_SHM=auto|memfd|posix
  // HEDDLE_ALLOC_MEM=0|1: MPI_Alloc_mem from memory that the ranks of a node can reach
  bool alloc_mem = true;
  // HEDDLE_MEASURE=0|1: try the algorithms within a node when a communicator is made
  bool measure = true;
  // HEDDLE_REPRODUCIBLE=0|1: sums depend on the ranks and where they are, and on nothing else; implies
  // `sparse` false
  bool reproducible = false;
  // HEDDLE_CHECK=0|1|2: the ranks compare their calls before each, and (2) under the preload library the
  // results with the host MPI's
  CheckSetting check = CheckSetting::off;
  // HEDDLE_CACHE=PATH: where what was measured is kept; empty: the user's cache folder
  std::string cache_folder;
  // HEDDLE_PROGRESS_THREAD=auto|0|1|always: moves requests while the caller computes
  ProgressThreadSetting progress_thread = ProgressThreadSetting::automatic;
  // HEDDLE_SPARSE=0|1: sums of mostly zeros between nodes go as their entries, without loss
  bool sparse = true;
  std::string compress;  // HEDDLE_COMPRESS=fp16|topk:0.01|...: sums of gradients between nodes lose
                         // precision; empty: none do
  std::size_t compress_from = std::size_t{64} << 10;  // HEDDLE_COMPRESS_FROM=SIZE
  std::size_t compress_memory = std::size_t{2}
                                << 30;  // HEDDLE_COMPRESS_MEMORY=SIZE: of residuals, on each communicator
  bool compress_f32 = true;             // HEDDLE_COMPRESS_TYPES=float32[,float64]
  bool compress_f64 = false;
  // HEDDLE_CUDA=0|1: 0 takes every buffer for the host's
  bool cuda = true;
  std::size_t pinned_bytes = std::size_t{256} << 20;  // HEDDLE_PINNED_BYTES=SIZE: for copies from and to GPUs
  // HEDDLE_GPUDIRECT=auto|0|1: messages between nodes out of and into GPUs' memory; nothing: where it pays
  std::optional<bool> gpu_direct;
  std::size_t device_bytes = std::size_t{64}
                             << 20;  // HEDDLE_DEVICE_BYTES=SIZE: on a GPU, for others to reach
  // HEDDLE_EXCHANGE_BYTES=SIZE: the longest vector that kernels of a node's GPUs exchange
  std::size_t exchange_bytes = std::size_t{64} << 10;
  // HEDDLE_SHARED_CONTEXT=0|1: streams of ranks that are threads of one process, and share a GPU, may wait
  // for words in memory
  bool shared_context = false;
  int master_port = 0;  // HEDDLE_MASTER_PORT=PORT: bootstrap over TCP, overrides MASTER_PORT; 0: unset
  std::string
      job_id;  // HEDDLE_JOB_ID=TEXT: names the job at the start over TCP; empty: by the launcher's name
};

// What was odd about the environment; each line names the variable, the value and what was done instead.
struct ParsedConfig {
  Config config;
  std::vector<std::string> complaints;
};

// Parses `environment` (strings "NAME=VALUE"; only HEDDLE_* are looked at). A wrong value is replaced by the
// default and an unknown name is reported with the nearest known one, each in one complaint. An empty value
// counts as unset; of a name given twice the last value counts. No value makes this fail or throw.
ParsedConfig parse_config(const std::vector<std::string>& environment);
ParsedConfig parse_config_from_environ();

// All variables as a Markdown table (base/config_rows.hpp): what docs/environment.md must contain.
std::string config_table_markdown();

}  // namespace heddle
