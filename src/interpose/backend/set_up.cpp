#include "interpose/backend/set_up.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>
#include <utility>

#include "setup/hello.hpp"

namespace heddle::backend {
namespace {

using Clock = std::chrono::steady_clock;

// The first record a rank sends, with its Hello behind it. `arrived` is what tells an answer from the zeros
// that the receive buffer starts with.
//
// How long it is, and what it begins with (the first two), never changes: a rank of another build has to be
// understood before it can be refused, and a record of another length would end the job.
struct RecordHead {
  std::uint64_t arrived;
  std::uint64_t protocol;
  std::uint64_t complaints_hash;
  std::uint64_t pairs_hash;
  std::uint64_t holds_off;  // Shortage's
};
constexpr std::uint64_t kArrived = 0x6865646c646c6533;  // "heddle3"
constexpr std::size_t kRecord = 1024;
static_assert(sizeof(RecordHead) + sizeof(Hello) <= kRecord);
constexpr std::size_t kMostNamed = 8;

std::string seconds_text(std::chrono::milliseconds time) {
  return fmt::format("{:.3g}", std::chrono::duration<double>(time).count());
}

std::uint64_t hash_of(const Pairs& pairs) {
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(pairs.data()), sizeof pairs});
}

// Polls quickly at first (everybody is usually there), then gives the core away, then sleeps.
void pause(unsigned round) {
  if (round < 200) return;
  if (round < 20'000) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace

struct SetUp::Exchange {
  MPI_Comm comm;
  int rank;
  int size;
  Pairs pairs{};                        // that this rank could serve
  bool met = false;                     // the first gather is over
  bool held_off = false;                // in that a rank did not want to try
  bool all_have_the_same_pairs = true;  // from then on
};

SetUp::SetUp(const HostMpi& mpi, const HostSelf& self, std::shared_ptr<ProcessState> process,
             ParsedConfig parsed, int world_rank)
    : mpi_(mpi),
      self_(self),
      process_(std::move(process)),
      config_(std::move(parsed.config)),
      log_(config_.log_level, world_rank),
      complaints_(std::move(parsed.complaints)) {
  std::string all;
  for (const std::string& line : complaints_)
    all += line + '\n';
  if (!all.empty()) complaints_hash_ = std::hash<std::string>()(all);
}

// Numbers in MPI_COMM_WORLD, MPI_UNDEFINED for processes of another one; the ranks themselves where the host
// does not tell.
std::vector<int> SetUp::in_world(MPI_Comm comm, const std::vector<int>& ranks) const {
  std::vector<int> found = ranks;
  MPI_Group here;
  MPI_Group world;
  if (mpi_.Comm_group(comm, &here) == MPI_SUCCESS && mpi_.Comm_group(MPI_COMM_WORLD, &world) == MPI_SUCCESS) {
    mpi_.Group_translate_ranks(here, static_cast<int>(ranks.size()), ranks.data(), world, found.data());
    mpi_.Group_free(&here);
    mpi_.Group_free(&world);
  }
  return found;
}

// Processes that were spawned, or connected to, may run without the preload library, and then never come to
// the set-up. Each rank has such among the others where one has, so all know without asking.
bool SetUp::has_strangers(MPI_Comm comm, int size) const {
  if (comm == MPI_COMM_WORLD) return false;
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  const std::vector<int> found = in_world(comm, ranks);
  return std::find(found.begin(), found.end(), MPI_UNDEFINED) != found.end();
}

// "rank 2" or "ranks 2, 3 and 5", numbered as in MPI_COMM_WORLD, which is how users know them.
std::string SetUp::name_ranks(const Exchange& exchange, const std::vector<int>& ranks) const {
  const std::vector<int> names = in_world(exchange.comm, ranks);
  std::string text = names.size() == 1 ? "rank " : "ranks ";
  const std::size_t named = std::min(names.size(), kMostNamed);
  for (std::size_t i = 0; i < named; ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += std::to_string(names[i]);
  }
  if (named < names.size()) text += " and " + std::to_string(names.size() - named) + " more";
  return text;
}

// Launchers (MPICH's Hydra does) drop what is still in their pipes when a job aborts: let it arrive first.
void SetUp::last_words(const std::string& text) const {
  log_.error(text);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

// Waits for `request`, driving the host. `missing()` lists the ranks that have not answered, as far as is
// known. The lowest rank that is there speaks and aborts for all; the others do so a moment later if that one
// cannot.
template <typename Missing>
Status SetUp::wait(const Exchange& exchange, MPI_Request* request, const Missing& missing) {
  const auto start = Clock::now();
  bool warned = config_.warn_after.count() == 0;
  for (unsigned round = 0;; ++round) {
    int done = 0;
    if (mpi_.Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
      return Status(Code::system, "the host MPI failed while heddle was being set up");
    }
    if (done != 0) return Status();
    pause(round);
    if (round % 64 != 63) continue;
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
    const bool warn = !warned && waited >= config_.warn_after;
    const bool expired = config_.timeout.count() != 0 && waited >= config_.timeout;
    if (!warn && !expired) continue;
    const std::vector<int> absent = missing();
    int speaker = 0;  // the lowest rank not absent
    for (const int rank : absent)
      speaker += rank == speaker ? 1 : 0;
    const bool speaks = exchange.rank == speaker || waited >= config_.timeout + std::chrono::seconds(1);
    std::string text =
        (absent.empty() ? std::string("some rank has")
                        : name_ranks(exchange, absent) + (absent.size() == 1 ? " has" : " have")) +
        " not joined heddle's set-up on a communicator of " + std::to_string(exchange.size) + " for " +
        seconds_text(waited) +
        " s; if it runs with HEDDLE_ENABLE=0, without LD_PRELOAD=libheddle_preload.so, or with another "
        "HEDDLE_REPRODUCIBLE, set HEDDLE_ENABLE=0 on every rank, or start all with the library (mpiexec "
        "-genv "
        "LD_PRELOAD ...) and the same settings";
    if (expired && speaks) {
      last_words(text + "; giving up after HEDDLE_TIMEOUT=" + seconds_text(config_.timeout));
      mpi_.Abort(exchange.comm, 1);
    } else if (warn && !expired) {
      warned = true;
      if (exchange.rank == speaker) log_.warn(text);
    }
  }
}

// An allgather of direct messages between all pairs (MPI_Ialltoallv with the one send buffer for everybody),
// so that the receive buffer tells who has answered. Only then can a rank without the preload library be
// named.
Status SetUp::gather_first(Exchange& exchange, const void* mine, void* all, std::size_t bytes) {
  if (sizeof(RecordHead) + bytes > kRecord)
    return Status(Code::internal, "too much in the first record of heddle's set-up");
  const auto size = static_cast<std::size_t>(exchange.size);
  std::vector<std::byte> out(kRecord);
  std::vector<std::byte> in(kRecord * size);
  const RecordHead head = {kArrived, kProtocol, complaints_hash_, hash_of(exchange.pairs),
                           shortage_.holds_off() ? 1U : 0U};
  std::memcpy(out.data(), &head, sizeof head);
  std::memcpy(out.data() + sizeof head, mine, bytes);
  std::vector<int> counts(size, static_cast<int>(kRecord));
  std::vector<int> zeros(size, 0);
  std::vector<int> places(size);
  for (std::size_t i = 0; i < size; ++i)
    places[i] = static_cast<int>(i * kRecord);

  MPI_Request request;
  if (mpi_.Ialltoallv(out.data(), counts.data(), zeros.data(), MPI_BYTE, in.data(), counts.data(),
                      places.data(), MPI_BYTE, exchange.comm, &request) != MPI_SUCCESS) {
    return Status(Code::system, "MPI_Ialltoallv failed while heddle was being set up");
  }
  const auto head_of = [&](std::size_t rank) {
    RecordHead found;
    // The host writes this buffer while we look: volatile bytes, for diagnosis only.
    const volatile std::byte* from = in.data() + rank * kRecord;
    std::byte copy[sizeof found];
    for (std::size_t i = 0; i < sizeof found; ++i)
      copy[i] = from[i];
    std::memcpy(&found, copy, sizeof found);
    return found;
  };
  HEDDLE_TRY(wait(exchange, &request, [&] {
    std::vector<int> absent;
    for (std::size_t i = 0; i < size; ++i) {
      if (static_cast<int>(i) != exchange.rank && head_of(i).arrived != kArrived)
        absent.push_back(static_cast<int>(i));
    }
    return absent;
  }));
  bool first_with_these = true;
  for (std::size_t i = 0; i < size; ++i) {
    const RecordHead found = head_of(i);
    if (found.arrived != kArrived || found.protocol != kProtocol) {
      return Status(Code::unsupported, "rank " + std::to_string(i) +
                                           " runs another version of heddle (protocol " +
                                           std::to_string(found.protocol) + ", here " +
                                           std::to_string(kProtocol) + "): use one build on all ranks");
    }
    if (static_cast<int>(i) < exchange.rank && found.complaints_hash == complaints_hash_)
      first_with_these = false;
    if (found.pairs_hash != head_of(0).pairs_hash) exchange.all_have_the_same_pairs = false;
    if (found.holds_off != 0) exchange.held_off = true;
    std::memcpy(static_cast<std::byte*>(all) + i * bytes, in.data() + i * kRecord + sizeof head, bytes);
  }
  say_complaints(first_with_these);
  if (!exchange.held_off) return Status();
  return Status(Code::out_of_memory,
                "what was short for one before it may still be: not tried, as some of those that follow");
}

Status SetUp::gather(Exchange& exchange, const void* mine, void* all, std::size_t bytes) {
  if (!exchange.met) {
    exchange.met = true;
    return gather_first(exchange, mine, all, bytes);
  }
  MPI_Request request;
  const int count = static_cast<int>(bytes);
  if (mpi_.Iallgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, exchange.comm, &request) != MPI_SUCCESS) {
    return Status(Code::system, "MPI_Iallgather failed while heddle was being set up");
  }
  return wait(exchange, &request, [] { return std::vector<int>(); });
}

// What was odd about the environment: once in the job for each distinct environment.
void SetUp::say_complaints(bool first_with_these) {
  const std::lock_guard lock(mutex_);
  if (first_with_these) {
    for (const std::string& line : complaints_)
      log_.warn(line);
  }
  complaints_.clear();
}

void SetUp::conclude(CommState& state, const Status& refusal) {
  state.mode = Mode::host;
  if (state.rank != 0) return;
  const std::string text = state.name + ": left to the host MPI: " + refusal.message();
  if (!config_.enable) {
    log_.info(text);
    return;
  }
  // In a process without descriptors, say, each names another file, and is new.
  constexpr std::size_t kMost = 3;
  std::size_t said = 0;
  {
    const std::lock_guard lock(mutex_);
    if (refusals_said_.contains(refusal.message())) return;
    said = refusals_said_.size();
    if (said < kMost) refusals_said_.insert(refusal.message());
  }
  if (said == kMost) {
    log_.info(text);
    return;
  }
  log_.warn(said + 1 < kMost ? text : text + "; HEDDLE_LOG=info says what else there is of that kind");
}

// A reduction that heddle would serve on some ranks and the host on others would never end.
Status SetUp::agree_on_pairs(Exchange& exchange, CommState& state) {
  std::vector<Pairs> all(static_cast<std::size_t>(exchange.size));
  HEDDLE_TRY(gather(exchange, &exchange.pairs, all.data(), sizeof exchange.pairs));
  Pairs common = all.front();
  Pairs any{};
  for (const Pairs& one : all) {
    for (std::size_t i = 0; i < common.size(); ++i) {
      common[i] &= one[i];
      any[i] |= one[i];
    }
  }
  state.pairs = std::make_unique<const Pairs>(common);
  if (state.rank == 0 && log_.wants(LogLevel::info)) {
    log_.info(
        state.name +
        ": left to the host MPI, which computes them in one way on some ranks and in another on others: " +
        DatatypeMap::describe_missing(any, common));
  }
  return Status();
}

void SetUp::run(MPI_Comm comm, CommState& state, DatatypeMap& map) {
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  mpi_.Comm_get_name(comm, name, &length);
  state.name =
      (length > 0 ? std::string(name) : std::string("a communicator")) + " of " + std::to_string(state.size);

  if (has_strangers(comm, state.size)) {
    state.mode = Mode::host;
    if (state.rank == 0)
      log_.info(state.name +
                ": left to the host MPI: some of its processes are of another MPI_COMM_WORLD (spawned, or "
                "connected "
                "to), and may run without heddle");
    return;
  }
  Exchange exchange = {comm, state.rank, state.size};
  if (config_.enable) exchange.pairs = map.host_pairs();
  Bootstrap bootstrap;
  bootstrap.rank = state.rank;
  bootstrap.size = state.size;
  bootstrap.allgather = [&](const void* mine, void* all, std::size_t bytes) {
    return gather(exchange, mine, all, bytes);
  };
  // Ranks may have different numbers of them: who has none to lend says so before the others make theirs.
  if (p2p_open_.load(std::memory_order_relaxed) < HostP2p::kMost)
    bootstrap.make_p2p = [this, comm, &state]() -> Result<heddle_p2p> {
      auto made = HostP2p::create(mpi_, comm, p2p_open_);
      if (!made.ok()) return made.status();
      state.p2p = std::move(made).value();
      return state.p2p->functions();
    };
  bootstrap.process = process_;
  bootstrap.has_requests = false;  // non-blocking collectives are left to the host
  bootstrap.host_progress = [&self = self_] { self.progress(); };
  auto made = Communicator::create(bootstrap, config_);
  Status status = made.status();
  if (status.ok())
    shortage_.note_success();
  else if (status.code() == Code::out_of_memory)
    shortage_.note_refusal(exchange.held_off);
  if (status.ok() && !exchange.all_have_the_same_pairs) status = agree_on_pairs(exchange, state);
  if (!status.ok()) {
    state.p2p.reset();
    conclude(state, status);
    return;
  }
  state.communicator = std::move(made).value();
  state.savings = Savings::make(config_, *state.communicator, log_);
  state.mode = state.pairs != nullptr ? Mode::partly : Mode::heddle;
  int same = MPI_UNEQUAL;
  if (state.communicator->topology().nodes() > 1 &&
      mpi_.Comm_compare(comm, MPI_COMM_WORLD, &same) == MPI_SUCCESS && same != MPI_UNEQUAL) {
    all_ranks_message_.store(true, std::memory_order_relaxed);
  }
  state.explain = log_.wants(state.rank == 0 ? LogLevel::info : LogLevel::debug);
  if (!state.explain) return;
  log_.info(state.name + ": " + state.communicator->describe());
  if (!config_.compress.empty())
    log_.info(state.name + ": large sums of floats " +
              (state.savings ? "are sent as " + config_.compress + " (HEDDLE_COMPRESS)"
                             : "stay as they are: HEDDLE_COMPRESS is for what goes between nodes"));
}

}  // namespace heddle::backend
