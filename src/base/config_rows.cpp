#include "base/config_rows.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/text.hpp"

namespace heddle {
namespace {

// What is wrong with a value; empty when nothing is.
using Problem = std::string;

std::optional<bool> switch_of(std::string_view value) {
  const std::string v = lower(value);
  if (v == "1" || v == "on" || v == "yes" || v == "true") return true;
  if (v == "0" || v == "off" || v == "no" || v == "false") return false;
  return std::nullopt;
}

template <bool Config::*target>
Problem set_switch(std::string_view value, Config& config) {
  const std::optional<bool> is_on = switch_of(value);
  if (!is_on) return "is neither 0 nor 1";
  config.*target = *is_on;
  return {};
}

Problem set_check(std::string_view value, Config& config) {
  const std::optional<bool> is_on = switch_of(value);
  if (!is_on && value != "2") return "is none of 0, 1 and 2";
  config.check = !is_on ? CheckSetting::results : *is_on ? CheckSetting::calls : CheckSetting::off;
  return {};
}

// What it may say belongs to those who read it.
template <std::string Config::*target>
Problem set_text(std::string_view value, Config& config) {
  config.*target = value;
  return {};
}

template <std::size_t Config::*target>
Problem set_size(std::string_view value, Config& config) {
  const std::optional<std::size_t> bytes = parse_size(value);
  if (!bytes) return "is not a size in bytes, with an optional K, M or G";
  config.*target = *bytes;
  return {};
}

template <int Config::*target>
Problem set_whole(std::string_view value, Config& config, int least, int most, const char* problem) {
  const std::optional<int> number = parse_number<int>(value);
  if (!number || *number < least || *number > most) return problem;
  config.*target = *number;
  return {};
}

Problem set_log_level(std::string_view value, Config& config) {
  static constexpr std::array<std::string_view, 5> kLevels = {"none", "error", "warn", "info", "debug"};
  const auto* const found = std::find(kLevels.begin(), kLevels.end(), lower(value));
  if (found == kLevels.end()) return "is not one of none, error, warn, info, debug";
  config.log_level = static_cast<LogLevel>(found - kLevels.begin());
  return {};
}

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// Only the form is checked here: the names belong to the catalog, which sits above this folder.
Problem set_algorithm(std::string_view value, Config& config) {
  for (const std::string_view part : split_list(value)) {
    const std::size_t colon = part.find(':');
    const std::string_view name = colon == std::string_view::npos ? part : part.substr(colon + 1);
    const std::string_view scope = part.substr(0, colon == std::string_view::npos ? 0 : colon);
    if (colon != std::string_view::npos && scope != "allreduce" && scope != "bcast" && scope != "reduce" &&
        scope != "allgather" && scope != "sparse") {
      return "names a collective that is none of allreduce, bcast, reduce, allgather, sparse";
    }
    if (!is_name(name)) {
      return "does not have the form "
             "[allreduce:]NAME[,bcast:NAME][,reduce:NAME][,allgather:NAME][,sparse:NAME]";
    }
  }
  config.algorithm = value;
  return {};
}

Problem set_transports(std::string_view value, Config& config) {
  const std::string names = lower(value);
  for (const std::string_view name : split_list(names)) {
    if (name != "shm" && name != "mpi" && name != "tcp" && name != "ucx" && name != "verbs")
      return "names " + quoted(name) + ", which is not one of shm, mpi, tcp, ucx, verbs";
  }
  config.transports = names;
  return {};
}

// Rounds up, so that a tiny deadline does not become "never".
template <std::chrono::milliseconds Config::*target>
Problem set_seconds(std::string_view value, Config& config) {
  constexpr double kLongest = 1e9;
  const std::optional<double> seconds = parse_number<double>(value);
  if (!seconds || !std::isfinite(*seconds)) return "is not a number of seconds";
  if (*seconds < 0 || *seconds > kLongest) return "is outside 0 to 1000000000 seconds";
  config.*target = std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(*seconds * 1000)));
  return {};
}

Problem set_slot_bytes(std::string_view value, Config& config) {
  const std::optional<std::size_t> bytes = parse_size(value);
  if (!bytes) return "is not a size in bytes, with an optional K or M";
  if (*bytes < std::size_t{4} << 10 || *bytes > std::size_t{64} << 20) return "is outside 4K to 64M";
  if (*bytes % 4096 != 0) return "is not a multiple of 4K";
  config.slot_bytes = *bytes;
  return {};
}

// By itself, or as it is told.
template <std::optional<bool> Config::*member>
Problem set_auto(std::string_view value, Config& config) {
  const std::optional<bool> is_on = switch_of(value);
  if (!is_on && lower(value) != "auto") return "is not one of auto, 0, 1";
  config.*member = is_on;
  return {};
}

Problem set_spin(std::string_view value, Config& config) {
  const std::optional<int> polls = parse_number<int>(value);
  if (!polls) return "is not a whole number of polls";
  if (*polls < -1 || *polls > 1'000'000'000) return "is outside -1 to 1000000000 polls";
  config.spin = *polls;
  return {};
}

Problem set_shm_backing(std::string_view value, Config& config) {
  std::string backing = lower(value);
  if (backing != "auto" && backing != "memfd" && backing != "posix")
    return "is not one of auto, memfd, posix";
  config.shm_backing = std::move(backing);
  return {};
}

Problem set_cache_folder(std::string_view value, Config& config) {
  if (value[0] != '/') return "is not an absolute path";
  config.cache_folder = value;
  return {};
}

Problem set_progress_thread(std::string_view value, Config& config) {
  if (const std::optional<bool> is_on = switch_of(value)) {
    config.progress_thread = *is_on ? ProgressThreadSetting::spare : ProgressThreadSetting::off;
  } else if (lower(value) == "auto") {
    config.progress_thread = ProgressThreadSetting::automatic;
  } else if (lower(value) == "always") {
    config.progress_thread = ProgressThreadSetting::always;
  } else {
    return "is not one of auto, 0, 1, always";
  }
  return {};
}

Problem set_compress_types(std::string_view value, Config& config) {
  bool f32 = false;
  bool f64 = false;
  for (const std::string_view name : split_list(value)) {
    if (name != "float32" && name != "float64")
      return "names " + quoted(name) + ", which is not one of float32, float64";
    (name == "float32" ? f32 : f64) = true;
  }
  config.compress_f32 = f32;
  config.compress_f64 = f64;
  return {};
}

Problem set_device_bytes(std::string_view value, Config& config) {
  constexpr std::size_t kLeast = std::size_t{64} << 10;
  const std::optional<std::size_t> bytes = parse_size(value);
  if (bytes && *bytes != 0 && *bytes < kLeast) return "is neither 0 nor at least 64K";
  return set_size<&Config::device_bytes>(value, config);
}

// A block waits for those of the same number on other GPUs, so all of a kernel's should run at once: 128 do,
// on any GPU and beside others.
Problem set_exchange_bytes(std::string_view value, Config& config) {
  const std::optional<std::size_t> bytes = parse_size(value);
  if (!bytes || *bytes > std::size_t{512} << 10) return "is not a size of at most 512K";
  config.exchange_bytes = *bytes;
  return {};
}

Problem set_verbs_traffic_class(std::string_view value, Config& config) {
  return set_whole<&Config::verbs_traffic_class>(value, config, 0, 255,
                                                 "is not a traffic class (0 to 255, four times the DSCP)");
}

Problem set_verbs_sl(std::string_view value, Config& config) {
  return set_whole<&Config::verbs_sl>(value, config, 0, 15, "is not a service level (0 to 15)");
}

// Written as the subnet manager's file and other libraries have them, with or without the highest bit, which
// says how one is a member.
Problem set_verbs_pkey(std::string_view value, Config& config) {
  constexpr int kPartition = 0x7fff;
  const bool is_hex = value.starts_with("0x") || value.starts_with("0X");
  const std::optional<int> key = is_hex ? parse_number<int>(value.substr(2), 16) : parse_number<int>(value);
  if (!key || *key < 0 || *key > 0xffff || (*key & kPartition) == 0)
    return "is not the key of a partition (0x1 to 0x7fff, or with 0x8000 added)";
  config.verbs_pkey = *key & kPartition;
  return {};
}

Problem set_verbs_gid(std::string_view value, Config& config) {
  return set_whole<&Config::verbs_gid>(value, config, 0, 255, "is not the index of a GID (0 to 255)");
}

Problem set_verbs_timeout(std::string_view value, Config& config) {
  const std::optional<double> seconds = parse_number<double>(value);
  if (!seconds || !(*seconds >= 0.1 && *seconds <= 600)) return "is not a number of seconds from 0.1 to 600";
  return set_seconds<&Config::verbs_timeout>(value, config);
}

Problem set_tcp_ports(std::string_view value, Config& config) {
  const std::size_t dash = value.find('-');
  const std::optional<int> first = parse_number<int>(value.substr(0, dash));
  const std::optional<int> last =
      dash == std::string_view::npos ? first : parse_number<int>(value.substr(dash + 1));
  if (!first || !last || *first < 1 || *last > 65535 || *last < *first)
    return "is not a range of ports, FIRST-LAST (1 to 65535)";
  config.tcp_ports = {*first, *last};
  return {};
}

Problem set_master_port(std::string_view value, Config& config) {
  return set_whole<&Config::master_port>(value, config, 1, 65535, "is not a port number (1 to 65535)");
}

using Row = ConfigRow;

// The one table: parsing, complaints, heddle-info and docs/environment.md all come from here.
constexpr std::array kRows = {
    Row{{"HEDDLE_ENABLE", "0, 1", "1",
         "0 leaves every call to the host MPI. All ranks need it then: under the preload library a rank with "
         "0 tells the others nothing, and they would wait for it. In the native API, which has nobody to "
         "leave calls to, no communicator can be made with 0."},
        set_switch<&Config::enable>},
    Row{{"HEDDLE_LOG", "none, error, warn, info, debug", "warn",
         "How much is said on standard error. info: what heddle is in front of, one line per communicator "
         "and per distinct decision, and what came of it; debug: a communicator's line from each of its "
         "ranks."},
        set_log_level},
    Row{{"HEDDLE_ALGORITHM", "[allreduce:]NAME[,bcast:NAME][,reduce:NAME][,allgather:NAME][,sparse:NAME]",
         "on one node what is measured as the fastest (allreduce, bcast), else the cheapest by price",
         "Forces an algorithm of the catalog, for all sizes it can serve; a name without a collective means "
         "all that have it. sparse: allreduces of sparse streams; dense: none of them; bitmaps: by "
         "bitmaps on one node, where the result has about one entry in 64 indices or more. Where allreduce "
         "or bcast is forced nothing is tried on one node, and the other goes by price."},
        set_algorithm},
    Row{{"HEDDLE_TUNING_FILE", "PATH", "unset",
         "A JSON tuning file, which overrides the choice by measuring or by price."},
        set_text<&Config::tuning_file>},
    Row{{"HEDDLE_TRANSPORTS", "comma-separated list of shm, mpi, tcp, ucx, verbs", "shm,mpi,tcp,ucx,verbs",
         "Which transports may be used; of those between nodes that every rank can use the one that is "
         "measured as the fastest, or the first in the list with HEDDLE_MEASURE=0. Without shm every rank "
         "counts as a node of its own."},
        set_transports},
    Row{{"HEDDLE_MODULES", "path", "beside the library, or heddle/ there",
         "Folder of the modules for UCX and verbs."},
        set_text<&Config::modules>},
    Row{{"HEDDLE_TCP_INTERFACES", "comma-separated list of names, as in `ip link`", "all that are up",
         "Network interfaces that tcp may use to be reached by others."},
        set_text<&Config::tcp_interfaces>},
    Row{{"HEDDLE_TCP_PORTS", "FIRST-LAST, ports", "any that the system gives",
         "On which ports tcp listens for other nodes' ranks, such as those that a firewall leaves open. "
         "Each rank takes one for each communicator over several nodes."},
        set_tcp_ports},
    Row{{"HEDDLE_TCP_CONGESTION", "name, as in /proc/sys/net/ipv4/tcp_allowed_congestion_control",
         "the system's; for bbr, reno to ranks within 1 ms",
         "Congestion control of tcp's connections. bbr spaces packets out, by which sums of 128 KiB and more "
         "take twice as long between hosts near to each other; bbr here keeps it."},
        set_text<&Config::tcp_congestion>},
    Row{{"HEDDLE_VERBS_DEVICE", "name[:port], or several with commas", "the fastest port that is up",
         "Which RDMA device verbs uses; ibv_devices lists them. Of several the ranks of a node take one "
         "each, "
         "in turn: its first rank the first one."},
        set_text<&Config::verbs_device>},
    Row{{"HEDDLE_VERBS_GID", "0 to 255", "RoCE v2 with an address of IPv4, else the nearest to it",
         "Index of the GID that verbs uses; ibv_devinfo -v lists them."},
        set_verbs_gid},
    Row{{"HEDDLE_VERBS_TIMEOUT", "seconds from 0.1 to 600, fractions allowed", "7",
         "A peer whose device acknowledges no message of verbs for about this long is gone; so is the own "
         "port, when it is down for half of it. Longer outlasts a fabric that takes long to reroute."},
        set_verbs_timeout},
    Row{{"HEDDLE_VERBS_TRAFFIC_CLASS", "0 to 255", "0",
         "Traffic class of what verbs sends: on RoCE v2 the byte of the IP header that has the DSCP in its "
         "upper "
         "six bits (104: DSCP 26), which switches go by."},
        set_verbs_traffic_class},
    Row{{"HEDDLE_VERBS_SL", "0 to 15", "0",
         "Service level of what verbs sends; on RoCE with a VLAN its priority (0 to 7)."},
        set_verbs_sl},
    Row{{"HEDDLE_VERBS_PKEY", "0x1 to 0x7fff, or with 0x8000 added; decimal as well", "the port's first",
         "Key, not index, of the partition of InfiniBand that verbs uses."},
        set_verbs_pkey},
    Row{{"HEDDLE_VERBS_ODP", "0, 1", "0",
         "1 has verbs keep registrations of memory where the device follows the page tables (on-demand "
         "paging), "
         "instead of pinning each long message's for as long as it is under way. Each page that the device "
         "has not met yet stalls the connection."},
        set_switch<&Config::verbs_odp>},
    Row{{"HEDDLE_TIMEOUT", "seconds, fractions allowed", "0 (no deadline)",
         "A wait fails after this long without any progress of this rank's messages or of its node's ranks, "
         "with a message that names the missing rank; 0: never, but for the start of a native job, which has "
         "60 seconds then, and messages between nodes while a communicator is made and connections of tcp, "
         "which have 30. Waits in barriers count as well, and those for a rank that is busy with something "
         "else."},
        set_seconds<&Config::timeout>},
    Row{{"HEDDLE_WARN_AFTER", "seconds, fractions allowed", "10",
         "A wait that goes on for longer without any progress says who is missing, and that `HEDDLE_CHECK=1` "
         "compares the calls, each rank once in five minutes at most (of ranks that share memory the first "
         "that waits, the others after six times as long); 0: never. So does the start of a native job, "
         "once."},
        set_seconds<&Config::warn_after>},
    Row{{"HEDDLE_SLOT_BYTES", "4K to 64M, a multiple of 4K; K and M suffixes",
         "by the sizes of the caches (32K to 128K)",
         "Size of one slot of the staged shared-memory pipeline."},
        set_slot_bytes},
    Row{{"HEDDLE_SINGLE_COPY", "auto, 0, 1", "auto (as measured when a communicator is made)",
         "Whether the kernel copies a bcast of 8 to 64 KiB within a node from the root's buffer "
         "(process_vm_readv), "
         "where the ranks may read each other's memory. An allgather of 64 KiB or more of each rank goes the "
         "faster way, as tried now and then, unless this is 0."},
        set_auto<&Config::single_copy>},
    Row{{"HEDDLE_SPIN", "-1 or a number of polls", "-1 (by the cores at hand)",
         "How often a wait polls before it yields its core. By itself: 30 where ranks share cores; else "
         "4,000 to begin with, 200 where a yield turns out "
         "to let another rank run, and 20,000 where it turns out to let strangers run for a slice of the "
         "system's."},
        set_spin},
    Row{{"HEDDLE_SHM", "auto, memfd, posix", "auto",
         "Where shared memory comes from: memfd_create or shm_open."},
        set_shm_backing},
    Row{{"HEDDLE_ALLOC_MEM", "0, 1", "1",
         "0 leaves MPI_Alloc_mem to the host MPI; 1 serves 32 KiB and more from memory that the ranks of a "
         "node can "
         "reach."},
        set_switch<&Config::alloc_mem>},
    Row{{"HEDDLE_MEASURE", "0, 1", "1",
         "1 tries the algorithms when ranks of one node, each with a core of its own, make a communicator, "
         "for about 0.1 s, once for each machine and placement of ranks, and the ways of buffers on GPUs "
         "when "
         "those begin to serve it; 0 goes by price alone."},
        set_switch<&Config::measure>},
    Row{{"HEDDLE_REPRODUCIBLE", "0, 1", "0",
         "1 adds the elements of all dense vectors in one order, which depends on the ranks and on which "
         "nodes "
         "they are, and on nothing else: the same bits in every run, for any length, kind of call and "
         "memory."},
        set_switch<&Config::reproducible>},
    Row{{"HEDDLE_CHECK", "0, 1, 2", "0",
         "1 looks for mistakes of the program: before each collective the ranks compare which one they call, "
         "and with what count, type, operation and root; where they differ every rank gets an error that "
         "says who calls what. Costs a small sum for each call. 2 does so, and under the preload library has "
         "the host MPI repeat each call that heddle has served: another result is an error on every rank."},
        set_check},
    Row{{"HEDDLE_CACHE", "an absolute path", "$XDG_CACHE_HOME/heddle, else ~/.cache/heddle",
         "The folder in which what was measured is kept for the next job."},
        set_cache_folder},
    Row{{"HEDDLE_PROGRESS_THREAD", "auto, 0, 1, always", "auto",
         "A thread moves a communicator's non-blocking collectives while the caller computes: auto where "
         "tcp, "
         "ucx or verbs connects "
         "the nodes, which it can sleep on; 1 also on one node, where a core is left for it; always: also "
         "without. Native API "
         "only."},
        set_progress_thread},
    Row{{"HEDDLE_SPARSE", "0, 1", "1",
         "1 looks at samples of large sums between nodes, and sends those of mostly zeros as their entries, "
         "without loss (preload "
         "library only)."},
        set_switch<&Config::sparse>},
    Row{{"HEDDLE_COMPRESS",
         "fp16, bf16, qsgd:8, qsgd:4, qsgd:2, terngrad, onebit, topk:FRACTION, topk-sampled:FRACTION, "
         "randomk:FRACTION",
         "unset",
         "How sums between nodes are sent, with less precision: all values in fewer bits (qsgd, terngrad and "
         "onebit take :BUCKET behind, the number of values with one scale), or the FRACTION of the entries "
         "that "
         "is largest (topk) or drawn at random (randomk). What is lost in a sum is added to the next one "
         "from "
         "the same buffer, but for fp16, bf16, qsgd:2 and terngrad (preload library only)."},
        set_text<&Config::compress>},
    Row{{"HEDDLE_COMPRESS_FROM", "a size in bytes; K, M and G suffixes", "64K",
         "Smaller sums are not compressed."},
        set_size<&Config::compress_from>},
    Row{{"HEDDLE_COMPRESS_MEMORY", "a size in bytes; K, M and G suffixes", "2G",
         "What is lost in sums, and added to the next ones, takes no more than this on each rank, for each "
         "communicator: four bytes for every value of every buffer. Beyond it, it is forgotten for buffers "
         "at random."},
        set_size<&Config::compress_memory>},
    Row{{"HEDDLE_COMPRESS_TYPES", "comma-separated list of float32, float64", "float32",
         "Sums of other types are not compressed; those of float64 are sent as float32 is."},
        set_compress_types},
    Row{{"HEDDLE_CUDA", "0, 1", "1",
         "0 takes every buffer for the host's, as where the host MPI serves GPU memory itself; 1 looks where "
         "buffers lie once the process has loaded CUDA."},
        set_switch<&Config::cuda>},
    Row{{"HEDDLE_PINNED_BYTES", "a size in bytes; K, M and G suffixes", "256M",
         "The most pinned host memory for staging GPU buffers, for a process (preload library) or a "
         "communicator (native API); what does not fit is staged in other memory, and copied through "
         "2 MiB of it."},
        set_size<&Config::pinned_bytes>},
    Row{{"HEDDLE_GPUDIRECT", "auto, 0, 1", "auto (where it is measured to pay)",
         "Whether the network's device reads and writes the GPUs' memory itself, in large calls over several "
         "nodes: GPUDirect RDMA. With 1 also where the host's memory is much faster for it."},
        set_auto<&Config::gpu_direct>},
    Row{{"HEDDLE_DEVICE_BYTES", "0, or a size in bytes from 64K on; K, M and G suffixes", "64M",
         "Memory on its GPU that each rank lends to a communicator whose ranks all pass GPU buffers, for the "
         "ranks "
         "of its node, which fold and copy by way of it; over several nodes as much again for calls on "
         "streams. 0: "
         "by way of host memory."},
        set_device_bytes},
    Row{{"HEDDLE_EXCHANGE_BYTES", "a size up to 512K", "64K",
         "Where each rank of a node has a GPU of its own, vectors of up to this size go from each GPU to all "
         "others in one kernel, which waits there for the others'. 0: no kernel waits for another GPU's."},
        set_exchange_bytes},
    Row{{"HEDDLE_SHARED_CONTEXT", "0, 1", "0 (refused)",
         "1: ranks that are threads of one process and share a GPU may call on streams over several "
         "nodes, and capture calls into CUDA graphs. On an H200 their streams have waited for each other for "
         "ever. Those with a GPU each exchange short vectors in kernels then, and may wait for ever where "
         "the process calls cudaMalloc, cudaFree or the like meanwhile."},
        set_switch<&Config::shared_context>},
    Row{{"HEDDLE_MASTER_PORT", "1 to 65535", "MASTER_PORT",
         "Port of the start over TCP (heddle_comm_create_env), for when a launcher's own store listens on "
         "MASTER_PORT."},
        set_master_port},
    Row{{"HEDDLE_JOB_ID", "any text",
         "TORCHELASTIC_RUN_ID, SLURM_JOB_ID, PBS_JOBID or LSB_JOBID, the first that is set",
         "Name of the job at the start over TCP, the same on all its ranks: rank 0 refuses ranks that have "
         "another."},
        set_text<&Config::job_id>},
};

}  // namespace

std::span<const ConfigRow> config_rows() {
  return kRows;
}

}  // namespace heddle
