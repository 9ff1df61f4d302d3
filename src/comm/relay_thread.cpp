#include "comm/relay_thread.hpp"

#include <sched.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "base/threads.hpp"

namespace heddle {

RelayThread::RelayThread(std::unique_ptr<HostCollectives> ranks, const RelayRing& ring, RelayWords& words)
    : ranks_(std::move(ranks)), ring_(ring), words_(words) {
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

void RelayThread::give(const RelayCall& call) {
  {
    const std::lock_guard lock(mutex_);
    end_ = call.first + ring_.pieces(call);
    calls_.push_back(call);
    // Where the collectives have failed since the caller looked nobody serves it any more.
    if (!lost_.ok()) release();
  }
  given_.notify_one();
}

void RelayThread::lose(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (lost_.ok()) lost_ = why;
  release();
}

// The stream, from all that it was given.
void RelayThread::release() {
  std::atomic_ref(words_.done).store(end_, std::memory_order_release);
}

Status RelayThread::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

void RelayThread::run() {
  ask_for_short_turns();
  while (const std::optional<RelayCall> call = next()) {
    if (!serve(*call)) return;
  }
}

// None: there will be no other.
std::optional<RelayCall> RelayThread::next() {
  std::unique_lock lock(mutex_);
  given_.wait(lock, [this] { return over_ || !calls_.empty(); });
  if (calls_.empty()) return {};
  const RelayCall call = calls_.front();
  calls_.pop_front();
  return call;
}

// Whether there is more to be done after it.
bool RelayThread::serve(const RelayCall& call) {
  const std::uint32_t pieces = ring_.pieces(call);
  for (std::uint32_t k = 0; k < pieces; ++k) {
    await(call.first + k);
    if (const Status ran = run_piece(call, k); !ran.ok()) {
      lose(ran);
      return false;
    }
    const std::lock_guard lock(mutex_);
    if (lost_.ok()) std::atomic_ref(words_.done).store(call.first + k + 1, std::memory_order_release);
  }
  return true;
}

// Until the stream has filled that piece's slot, which may take as long as the work before it: there is no deadline. Or until it is known that it will not.
// It looks at memory and calls nothing of CUDA's, which may hold up any caller while another thread waits there for the stream that waits for this.
void RelayThread::await(std::uint32_t number) const {
  constexpr int kLooks = 256;
  constexpr std::chrono::microseconds kNap{50};
  const std::atomic_ref<std::uint32_t> arrived(words_.arrived);
  for (int looks = 0; static_cast<std::int32_t>(arrived.load(std::memory_order_acquire) - number) <= 0;) {
    if (looks < kLooks) {
      ++looks;
      sched_yield();
      continue;
    }
    std::this_thread::sleep_for(kNap);
    const std::lock_guard lock(mutex_);
    if (over_ || !lost_.ok()) return;
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

}  // namespace heddle
