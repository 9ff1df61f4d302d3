// The host's half of collectives on streams, by itself: here the test is the stream.
#include "device/relay_thread.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace heddle {
namespace {

// Sums across, that triple.
class Triples final : public Across {
 public:
  int rank() const override { return 0; }
  int lanes() const override { return 2; }
  Status largest(std::span<std::uint64_t> /*words*/) override { return {}; }
  Status start_sum(std::size_t /*slot*/, void* data, std::size_t count, DType /*type*/, Op /*op*/,
                   LocalWork* /*local*/) override {
    counts.push_back(count);
    for (std::size_t i = 0; i < count; ++i)
      static_cast<std::int32_t*>(data)[i] *= 3;
    return {};
  }
  Status start_bcast(std::size_t /*slot*/, void* /*data*/, std::size_t /*bytes*/, int /*root*/,
                     LocalWork* /*local*/) override {
    return {};
  }
  Status finish(std::size_t /*slot*/) override {
    ++finished;
    return {};
  }
  Status progress() override { return {}; }
  Transport* network() override { return nullptr; }
  Result<std::size_t> scratch_for(std::size_t /*bytes*/) override { return std::size_t{0}; }

  std::vector<std::size_t> counts;  // of elements
  int finished = 0;
};

// One rank alone, whose sums double; or fail.
class Doubles final : public HostCollectives {
 public:
  Doubles(bool fails, Across* across) : fails_(fails), across_(across) {}
  Across* across() override { return across_; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Status allreduce(const void* /*in*/, void* out, std::size_t count, DType /*type*/, Op /*op*/) override {
    if (fails_) return Status(Code::peer_failed, "rank 1 is gone");
    rounding = std::fegetround();
    for (std::size_t i = 0; i < count; ++i)
      static_cast<std::int32_t*>(out)[i] *= 2;
    return {};
  }
  Status bcast(void* /*buffer*/, std::size_t /*bytes*/, int /*root*/) override { return {}; }

  static inline std::atomic<int> rounding{-1};  // of the last sum

 private:
  const bool fails_;
  Across* const across_;
};

constexpr std::size_t kPiece = 512;  // bytes

class Relay {
 public:
  explicit Relay(bool fails, Across* across = nullptr)
      : memory_(RelayRing::kSlots * kPiece / 4, 7),
        ring_{reinterpret_cast<std::byte*>(memory_.data()), kPiece},
        thread_(std::make_unique<Doubles>(fails, across), ring_, words_, Log(LogLevel::none)) {}
  RelayCall announce(std::size_t bytes, bool in_graph = false) {
    RelayCall call;
    call.number = thread_.announce(in_graph);
    call.type = DType::i32;
    call.bytes = bytes;
    return call;
  }
  RelayCall give(std::size_t bytes, bool in_graph = false, std::optional<SharesPieces> shares = {}) {
    RelayCall call = announce(bytes, in_graph);
    call.shares = shares;
    thread_.give(call);
    return call;
  }

  // What a stream does.
  static std::uint32_t look(std::uint32_t& word) { return std::atomic_ref(word).load(); }
  // Whether that word becomes 0.
  static bool clears(std::uint32_t& word) {
    for (int i = 0; i < 5000; ++i) {
      if (look(word) == 0) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  bool begin(const RelayCall& call) {
    if (!clears(words_.call.value)) return false;
    std::atomic_ref(words_.call.value).store(call.number);
    return true;
  }
  void fill(const RelayCall& call, std::size_t k) { std::atomic_ref(words_.slot(k)).store(call.number); }
  bool goes_on(std::size_t k) { return clears(words_.slot(k)); }
  bool is_done() { return clears(words_.call.value); }
  // All of it, piece by piece.
  bool does(const RelayCall& call) {
    if (!begin(call)) return false;
    for (std::uint32_t k = 0; k < ring_.pieces(call); ++k) {
      fill(call, k);
      if (!goes_on(k)) return false;
    }
    return true;
  }

  std::int32_t at(std::size_t i) const { return memory_[i]; }
  RelayWords& words() { return words_; }
  RelayThread& thread() { return thread_; }

 private:
  std::vector<std::int32_t> memory_;
  RelayWords words_;
  RelayRing ring_;
  RelayThread thread_;
};

TEST(RelayThread, RoundsAsItsCallersDo) {
  Relay relay(false);
  for (const int wanted : {FE_UPWARD, FE_TONEAREST}) {
    ASSERT_EQ(std::fesetround(wanted), 0);
    const RelayCall call = relay.give(8);
    ASSERT_EQ(std::fesetround(FE_TONEAREST), 0);
    ASSERT_TRUE(relay.does(call));
    EXPECT_EQ(Doubles::rounding.load(), wanted);
  }
}

TEST(RelayThread, DoesWhatHasArrived) {
  Relay relay(false);
  const RelayCall call = relay.give(kPiece + 8);
  ASSERT_TRUE(relay.begin(call));
  relay.fill(call, 0);
  relay.fill(call, 1);
  ASSERT_TRUE(relay.goes_on(1));
  ASSERT_TRUE(relay.is_done());
  EXPECT_EQ(relay.at(0), 14);
  EXPECT_EQ(relay.at(kPiece / 4 + 1), 14);  // the last of that call
  EXPECT_EQ(relay.at(kPiece / 4 + 2), 7);
  EXPECT_TRUE(relay.thread().lost().ok());
}

// Each call begins in the first slot, and has as many pieces as it likes.
TEST(RelayThread, MorePiecesThanSlots) {
  Relay relay(false);
  for (const std::int32_t first : {28, 112}) {
    ASSERT_TRUE(relay.does(relay.give(6 * kPiece)));
    EXPECT_EQ(relay.at(0), first);  // twice in each call
  }
}

// The shares of a rank in the second place on its node, of which the last piece has none; then a call as
// before. All ranks make the same calls, also without a share.
TEST(RelayThread, SumsSharesAcross) {
  Triples across;
  Relay relay(false, &across);
  SharesLayout layout;
  layout.lanes = 2;
  layout.share = kPiece;
  const std::size_t bytes = 2 * 2 * kPiece + 8;
  ASSERT_TRUE(relay.does(relay.give(bytes, false, SharesPieces(layout, 1, bytes))));
  ASSERT_TRUE(relay.is_done());
  EXPECT_EQ(across.counts, (std::vector<std::size_t>{kPiece / 4, kPiece / 4, 0}));
  EXPECT_EQ(across.finished, 3);
  EXPECT_EQ(relay.at(0), 21);
  EXPECT_EQ(relay.at(kPiece / 4), 21);     // the second slot
  EXPECT_EQ(relay.at(2 * kPiece / 4), 7);  // the third has nothing of this rank's
  ASSERT_TRUE(relay.does(relay.give(8)));
  EXPECT_EQ(relay.at(0), 42);
  EXPECT_TRUE(relay.thread().lost().ok());
}

// Ranks that have no places on nodes cannot, and no stream waits for it.
TEST(RelayThread, SharesWithoutPlaces) {
  Relay relay(false);
  SharesLayout layout;
  layout.share = kPiece;
  ASSERT_TRUE(relay.does(relay.give(kPiece, false, SharesPieces(layout, 0, kPiece))));
  EXPECT_EQ(relay.thread().lost().code(), Code::internal);
}

// A call of a graph comes as often as the stream comes to it, in whatever order with others.
TEST(RelayThread, Launches) {
  Relay relay(false);
  const RelayCall one = relay.give(4, true);
  const RelayCall two = relay.give(kPiece + 4, true);
  ASSERT_TRUE(relay.does(two));
  ASSERT_TRUE(relay.does(two));
  const RelayCall between = relay.give(8);
  ASSERT_TRUE(relay.does(one));
  ASSERT_TRUE(relay.does(between));
  ASSERT_TRUE(relay.does(two));
  EXPECT_EQ(relay.at(0), 7 << 5);
  EXPECT_EQ(relay.at(1), 7 << 4);
  EXPECT_EQ(relay.at(kPiece / 4 - 1), 7 << 3);
  EXPECT_EQ(relay.at(kPiece / 4), 7 << 3);
  EXPECT_EQ(relay.at(kPiece / 4 + 1), 7);
  EXPECT_TRUE(relay.thread().lost().ok());
}

// A stream may come to a call before the ranks are agreed on it: nothing is done before they are.
TEST(RelayThread, NotAgreedYet) {
  Relay relay(false);
  for (const bool agreed : {false, true}) {
    const RelayCall call = relay.announce(4);
    ASSERT_TRUE(relay.begin(call));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(Relay::look(relay.words().call.value), call.number);
    agreed ? relay.thread().give(call) : relay.thread().withdraw(call.number, true);
    if (agreed) relay.fill(call, 0);
    ASSERT_TRUE(relay.is_done());
    EXPECT_EQ(relay.at(0), agreed ? 14 : 7);
  }
  // One that the stream never comes to.
  relay.thread().withdraw(relay.announce(4).number, false);
  ASSERT_TRUE(relay.does(relay.give(4)));
  EXPECT_EQ(relay.at(0), 28);
}

// A capture that has failed and is launched all the same: nothing is done, and no stream waits.
TEST(RelayThread, FailedCapture) {
  Relay relay(false);
  const RelayCall call = relay.announce(2 * kPiece, true);
  relay.thread().withdraw(call.number, true);
  for (int launch = 0; launch < 2; ++launch)
    ASSERT_TRUE(relay.does(call));
  EXPECT_EQ(relay.at(0), 7);
  ASSERT_TRUE(relay.does(relay.give(4)));
  EXPECT_EQ(relay.at(0), 14);
}

// Others keep what they are, and no number comes again.
TEST(RelayThread, ForgetsCallsOfGraphs) {
  Relay relay(false);
  const RelayCall gone = relay.give(4, true);
  const RelayCall stays = relay.give(8, true);
  relay.thread().forgetting(gone.number)();
  EXPECT_EQ(relay.thread().in_graphs(), 1U);
  const RelayCall later = relay.give(4, true);
  EXPECT_NE(later.number, gone.number);
  EXPECT_NE(later.number, stays.number);
  ASSERT_TRUE(relay.does(stays));
  EXPECT_EQ(relay.at(1), 14);
  EXPECT_EQ(relay.at(2), 7);
  const auto forget = relay.thread().forgetting(stays.number);
  forget();
  forget();
  EXPECT_EQ(relay.thread().in_graphs(), 1U);
}

// A call that its stream has begun and does not do: the others have its pieces, and only that stream's. What
// it has filled holds up nobody, whenever it comes.
TEST(RelayThread, GivenUp) {
  Relay relay(false);
  const RelayCall graph = relay.give(4, true);
  const RelayCall before = relay.give(8);
  const RelayCall call = relay.give(3 * kPiece);
  relay.thread().lose(call.number, Status(Code::system, "no"));
  ASSERT_TRUE(relay.does(graph));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(relay.at(1), 7);  // not before the stream is there
  ASSERT_TRUE(relay.does(before));
  EXPECT_EQ(relay.at(1), 14);
  ASSERT_TRUE(relay.begin(call));
  ASSERT_TRUE(relay.is_done());
  EXPECT_EQ(relay.at(1), 28);
  EXPECT_EQ(relay.at(kPiece / 4), 14);
  relay.fill(call, 1);
  ASSERT_TRUE(relay.goes_on(1));
  EXPECT_EQ(relay.at(kPiece / 4), 14);
  EXPECT_EQ(relay.thread().lost().code(), Code::system);
  ASSERT_TRUE(relay.does(graph));
  EXPECT_EQ(relay.at(0), 7 << 4);
  EXPECT_EQ(relay.at(1), 28);
}

// The last thing that it does.
TEST(RelayThread, EndsWithoutTheStream) {
  std::vector<std::size_t> counts;
  {
    Triples across;
    {
      Relay relay(false, &across);
      SharesLayout layout;
      layout.share = kPiece;
      relay.give(2 * kPiece, false, SharesPieces(layout, 0, 2 * kPiece));
      relay.give(kPiece, false, SharesPieces(layout, 0, kPiece));
    }
    counts = across.counts;
  }
  EXPECT_EQ(counts, std::vector<std::size_t>(3, kPiece / 4));
}

// Also when graphs alone are left.
TEST(RelayThread, KeptWithoutTheStream) {
  Relay relay(false);
  const RelayCall graph = relay.give(4, true);
  const RelayCall begun = relay.give(2 * kPiece);
  relay.give(kPiece);
  ASSERT_TRUE(relay.begin(begun));
  relay.fill(begun, 0);
  ASSERT_TRUE(relay.goes_on(0));
  relay.thread().keep();
  ASSERT_TRUE(relay.is_done());
  ASSERT_TRUE(relay.does(graph));
  EXPECT_EQ(relay.at(0), 56);
  EXPECT_EQ(relay.at(1), 28);
  EXPECT_EQ(relay.at(kPiece / 4), 14);
  EXPECT_TRUE(relay.thread().missed().ok());
}

// Also what is given after the collectives have failed, which the caller may not have noticed.
TEST(RelayThread, AfterAFailureNoStreamWaits) {
  Relay relay(true);
  const RelayCall graph = relay.give(kPiece, true);
  const RelayCall call = relay.give(3 * kPiece);
  ASSERT_TRUE(relay.begin(call));
  relay.fill(call, 0);
  relay.fill(call, 1);
  ASSERT_TRUE(relay.goes_on(0));
  ASSERT_TRUE(relay.goes_on(1));
  EXPECT_EQ(relay.thread().lost().code(), Code::peer_failed);
  ASSERT_TRUE(relay.does(relay.give(2 * kPiece)));
  ASSERT_TRUE(relay.does(graph));
  EXPECT_EQ(relay.at(0), 7);
}

// What is there for graphs alone says so when they have gone on without results: once.
TEST(RelayThread, Missed) {
  Relay relay(true);
  const RelayCall graph = relay.give(kPiece, true);
  const RelayCall call = relay.give(4);
  ASSERT_TRUE(relay.does(call));
  ASSERT_TRUE(relay.is_done());
  EXPECT_FALSE(relay.thread().lost().ok());
  relay.thread().keep();
  EXPECT_TRUE(relay.thread().missed().ok());
  ASSERT_TRUE(relay.does(graph));
  ASSERT_TRUE(relay.is_done());
  const Status missed = relay.thread().missed();
  EXPECT_EQ(missed.code(), Code::peer_failed);
  EXPECT_NE(missed.message().find("rank 1 is gone"), std::string::npos) << missed.message();
  EXPECT_TRUE(relay.thread().missed().ok());
}

}  // namespace
}  // namespace heddle
