#include "device/relay_thread.hpp"

#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "base/no_memory.hpp"
#include "base/threads.hpp"

namespace heddle {
namespace {

// Numbers from here on are those of calls in graphs. Those of others go round below.
constexpr std::uint32_t kGraphs = std::uint32_t{1} << 31;

bool is_in_graph(std::uint32_t number) {
  return number >= kGraphs;
}

std::uint32_t look_at(std::uint32_t& word) {
  return std::atomic_ref(word).load(std::memory_order_acquire);
}
void clear(std::uint32_t& word) {
  std::atomic_ref(word).store(0, std::memory_order_release);
}
// One that a stream may set to another call's number at any time.
void clear_seen(std::uint32_t& word, std::uint32_t seen) {
  if (seen != 0) std::atomic_ref(word).compare_exchange_strong(seen, 0);
}

// Between two looks at memory.
class Looks {
 public:
  void pause() {
    constexpr int kMost = 256;
    constexpr std::chrono::microseconds kNap{50};
    if (count_ == kMost) {
      std::this_thread::sleep_for(kNap);
      return;
    }
    ++count_;
    sched_yield();
  }

 private:
  int count_ = 0;
};

}  // namespace

// ---- Calls in graphs

// So many are never in graphs at once that none would be left.
std::uint32_t CapturedCalls::add() {
  const std::lock_guard lock(mutex_);
  do
    last_ = last_ + 1 > kGraphs ? last_ + 1 : kGraphs;
  while (!calls_.try_emplace(last_).second);
  return last_;
}

void CapturedCalls::set(const RelayCall& call) {
  const std::lock_guard lock(mutex_);
  if (const auto found = calls_.find(call.number); found != calls_.end()) found->second = call;
}

void CapturedCalls::forget(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  calls_.erase(number);
}

std::optional<RelayCall> CapturedCalls::find(std::uint32_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(number);
  return found != calls_.end() ? std::optional(found->second) : std::nullopt;
}

std::size_t CapturedCalls::size() const {
  const std::lock_guard lock(mutex_);
  return calls_.size();
}

// Shared with forked processes, as what is private would be copied.
void* RelayWords::operator new(std::size_t bytes, std::align_val_t /*alignment*/) {
  void* const page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::bad_alloc();
  return page;
}

void RelayWords::operator delete(void* words) {
  munmap(words, sizeof(RelayWords));
}

RelayThread::RelayThread(std::unique_ptr<HostCollectives> ranks, const RelayRing& ring, RelayWords& words,
                         const Log& log)
    : ranks_(std::move(ranks)), ring_(ring), words_(words), log_(log) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
}

RelayThread::~RelayThread() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  given_.notify_one();
  thread_.join();
}

// ---- For the caller

std::uint32_t RelayThread::announce(bool in_graph) {
  std::uint32_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (in_graph) {
      number = graphs_->add();
    } else {
      last_ = last_ + 1 < kGraphs ? last_ + 1 : 1;
      number = last_;
      calls_.push_back({number, {}});
    }
  }
  given_.notify_one();
  return number;
}

void RelayThread::give(const RelayCall& call) {
  if (is_in_graph(call.number)) return graphs_->set(call);
  const std::lock_guard lock(mutex_);
  calls_.back().call = call;
}

void RelayThread::withdraw(std::uint32_t number, bool begun) {
  RelayCall nothing;
  nothing.number = number;
  if (begun) return give(nothing);
  if (is_in_graph(number)) return graphs_->forget(number);
  const std::lock_guard lock(mutex_);
  calls_.pop_back();
}

void RelayThread::lose(std::uint32_t number, const Status& why) {
  {
    const std::lock_guard lock(mutex_);
    if (lost_.ok()) lost_ = why;
    given_up_ = number;
  }
  given_.notify_one();
}

Status RelayThread::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

void RelayThread::keep() {
  const std::lock_guard lock(mutex_);
  kept_ = true;
  missed_ = false;
}

Status RelayThread::missed() {
  const std::lock_guard lock(mutex_);
  if (!missed_) return {};
  missed_ = false;
  return Status(
      failed_.code(),
      "a CUDA graph went on without the results of its collectives, and has to be captured again: " +
          failed_.message());
}

// ---- The thread

void RelayThread::run() {
  ask_for_short_turns();
  while (const std::optional<RelayCall> call = next()) {
    const Status served = without_throwing([&, this] { return serve(*call); });
    if (!served.ok()) return fail(served);
  }
}

// Whether there may be something to see in memory.
bool RelayThread::is_wanted() const {
  return !calls_.empty() || graphs_->size() > 0 || given_up_ != 0;
}

// Whether the stream will not come to that call any more, as when its context is gone.
bool RelayThread::is_past(std::uint32_t number) const {
  return over_ || (kept_ && !is_in_graph(number));
}

// That to which the stream has come; none: there will be no other. It looks at memory and calls nothing of
// CUDA's, which may hold up any caller while another thread waits there for the stream that waits for this.
std::optional<RelayCall> RelayThread::next() {
  for (Looks looks;; looks.pause()) {
    std::unique_lock lock(mutex_);
    if (!is_wanted()) looks = {};
    given_.wait(lock, [this] { return over_ || is_wanted(); });
    if (over_ && calls_.empty()) return {};
    const bool past = !calls_.empty() && is_past(calls_.front().number);
    const std::uint32_t number = past ? calls_.front().number : look_at(words_.call.value);
    if (number == 0) {
      let_go_rest();
    } else if (std::optional<RelayCall> call = find(number)) {
      return call;
    }
  }
}

// None: it is not known yet what it is.
std::optional<RelayCall> RelayThread::find(std::uint32_t number) const {
  if (!is_in_graph(number) && !calls_.empty() && calls_.front().number == number) return calls_.front().call;
  RelayCall nothing;
  nothing.number = number;
  return is_in_graph(number) ? graphs_->find(number).value_or(nothing) : nothing;
}

// Between calls: what a stream has filled of a call that was given up or withdrawn.
void RelayThread::let_go_rest() {
  for (RelayWords::Word& slot : words_.slots) {
    const std::uint32_t number = look_at(slot.value);
    if (number == 0) continue;
    const std::optional<RelayCall> call = find(number);
    if (call && ring_.pieces(*call) == 0) clear_seen(slot.value, number);
  }
}

Status RelayThread::serve(const RelayCall& call) {
  const InFloatMode mode(call.mode);
  const std::uint32_t pieces = ring_.pieces(call);
  for (std::uint32_t k = 0; k < pieces; ++k) {
    await(call, k);
    HEDDLE_TRY(run_piece(call, k));
    clear(words_.slot(k));
  }
  conclude(call);
  return {};
}

// The stream begins no other call before.
void RelayThread::conclude(const RelayCall& call) {
  {
    const std::lock_guard lock(mutex_);
    if (!calls_.empty() && calls_.front().number == call.number) calls_.pop_front();
  }
  clear(words_.call.value);
}

// Until the stream has filled that piece's slot, which may take as long as the work before it: there is no
// deadline. Or until it is known that it will not.
void RelayThread::await(const RelayCall& call, std::uint32_t k) {
  for (Looks looks; look_at(words_.slot(k)) != call.number; looks.pause()) {
    const std::lock_guard lock(mutex_);
    if (is_past(call.number) || given_up_ == call.number) return;
  }
}

Status RelayThread::run_piece(const RelayCall& call, std::uint32_t k) {
  const RelayPiece piece = ring_.piece_of(call, k);
  if (call.shares) return run_share(call, piece);
  if (call.collective == Collective::bcast) return ranks_->bcast(piece.slot, piece.bytes, call.root);
  return ranks_->allreduce(piece.slot, piece.slot, piece.bytes / dtype_size(call.type), call.type, call.op);
}

// Also where this rank has none: all make the same calls.
Status RelayThread::run_share(const RelayCall& call, const RelayPiece& share) {
  Across* const across = ranks_->across();
  if (across == nullptr) return Status(Code::internal, "these ranks have no places on nodes");
  HEDDLE_TRY(call.collective == Collective::bcast
                 ? across->start_bcast(0, share.slot, share.bytes, call.root, nullptr)
                 : across->start_sum(0, share.slot, share.bytes / dtype_size(call.type), call.type, call.op,
                                     nullptr));
  return across->finish(0);
}

// ---- When the collectives have failed

void RelayThread::fail(const Status& why) {
  // Who lacks memory may not have begun: then nothing has failed, and the others wait, unless this ends.
  if (why.code() == Code::out_of_memory) ranks_.reset();
  bool graphs = false;
  {
    const std::lock_guard lock(mutex_);
    if (lost_.ok()) lost_ = why;
    failed_ = why;
    missed_ = true;
    graphs = graphs_->size() > 0;
  }
  // A program that launches graphs and makes no other calls would not hear of it.
  if (graphs)
    log_.warn("collectives on streams have failed, CUDA graphs go on without their results: " +
              why.message());
  let_all_go();
}

// Streams, from what they were given and what they are given yet, until this ends.
void RelayThread::let_all_go() {
  for (Looks looks;; looks.pause()) {
    // The slots first: what is there belongs to that call.
    std::array<std::uint32_t, RelayRing::kSlots> filled;
    for (std::size_t k = 0; k < filled.size(); ++k)
      filled[k] = look_at(words_.slot(k));
    const std::uint32_t number = look_at(words_.call.value);
    bool kept = false;
    {
      const std::lock_guard lock(mutex_);
      if (over_) return;
      kept = kept_;
      missed_ = missed_ || is_in_graph(number);
    }
    // So that other ranks, which do not make it anew with this one, wait for nothing either.
    if (kept) ranks_.reset();
    clear_seen(words_.call.value, number);
    for (std::size_t k = 0; k < filled.size(); ++k)
      clear_seen(words_.slot(k), filled[k]);
  }
}

}  // namespace heddle
