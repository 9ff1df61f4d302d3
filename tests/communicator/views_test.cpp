// Bcasts of data that is not in one piece of memory, on some ranks or all.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "communicator/party.hpp"

namespace heddle::test {
namespace {

using Bytes = std::vector<std::byte>;

Bytes pattern(std::size_t bytes, std::uint64_t seed) {
  Bytes all(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    all[i] = static_cast<std::byte>((i * 2654435761u + seed * 40503u) >> 7);
  return all;
}

// Bytes in every second place, the last one first.
class Backwards final : public PackedView {
 public:
  explicit Backwards(std::size_t bytes) : places_(2 * bytes, kGap) {}
  explicit Backwards(const Bytes& data) : Backwards(data.size()) {
    EXPECT_TRUE(write(0, data.size(), data.data()));
    next_ = 0;
  }
  bool read(std::size_t first, std::size_t bytes, std::byte* to) override {
    if (!comes_next(first, bytes)) return false;
    for (std::size_t i = 0; i < bytes; ++i)
      to[i] = at(first + i);
    return true;
  }
  bool write(std::size_t first, std::size_t bytes, const std::byte* from) override {
    if (!comes_next(first, bytes)) return false;
    for (std::size_t i = 0; i < bytes; ++i)
      at(first + i) = from[i];
    return true;
  }
  Bytes data() {
    Bytes all(places_.size() / 2);
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = at(i);
    return all;
  }
  bool gaps_are_intact() const {
    for (std::size_t i = 0; i < places_.size(); i += 2) {
      if (places_[i] != kGap) return false;
    }
    return true;
  }
  std::size_t passed() const { return next_; }
  std::size_t fails_at = SIZE_MAX;

 private:
  static constexpr std::byte kGap{0xa5};
  std::byte& at(std::size_t i) { return places_[places_.size() - 1 - 2 * i]; }
  bool comes_next(std::size_t first, std::size_t bytes) {
    EXPECT_EQ(first, next_);
    if (first + bytes > fails_at) return fail(Status(Code::system, "the disk is on fire"));
    next_ = first + bytes;
    return true;
  }
  Bytes places_;
  std::size_t next_ = 0;
};

// Half of the ranks have views: others from call to call. Returns whether that of this rank served.
bool bcast(Rank& me, Communicator& comm, std::size_t bytes, int root, std::uint64_t tag) {
  const Bytes expected = pattern(bytes, tag);
  Bytes plain = me.rank == root ? expected : Bytes(bytes);
  if ((static_cast<std::uint64_t>(me.rank) + tag) % 2 == 0) {
    Backwards view = me.rank == root ? Backwards(expected) : Backwards(bytes);
    const Result<bool> served = comm.bcast_view(view, bytes, root);
    EXPECT_TRUE(served.ok()) << served.status().message();
    if (served.ok() && served.value()) {
      EXPECT_EQ(view.data(), expected);
      EXPECT_EQ(view.passed(), bytes);
      EXPECT_TRUE(view.gaps_are_intact());
      return true;
    }
    EXPECT_EQ(view.passed(), 0u) << "nothing has happened";
  }
  EXPECT_TRUE(comm.bcast(plain.data(), bytes, root).ok());
  EXPECT_EQ(plain, expected);
  return false;
}

TEST(Views, MeetWhateverTheOthersHave) {
  for (const Nodes& nodes : {Nodes{1, 1}, Nodes{1, 1, 1, 1}, Nodes{1, 1, 2}}) {
    const bool one_node = nodes.back() == 1;
    Party party(nodes);
    party.run(quiet(), [&](Rank& me, Communicator& comm) {
      std::uint64_t tag = 0;
      for (const std::size_t bytes :
           {100, 16'384, 16'385, 65'535, 65'536, 65'537, 262'143, 262'145, 2'000'003}) {
        int served = 0;
        for (int turn = 0; turn < 5; ++turn) {
          me.at("bcast", ++tag);
          served += bcast(me, comm, bytes, turn % me.size, tag) ? 1 : 0;
        }
        const bool reads = one_node && bytes > 65'536;
        const bool never = !one_node || bytes == 100;
        EXPECT_TRUE(reads ? served > 0 : !never || served == 0) << served << " of " << bytes << " bytes";
      }
    });
  }
}

TEST(Views, ThatFailEndTheBcastEverywhere) {
  constexpr std::size_t kBytes = 1'000'000;
  for (const int failing : {0, 1}) {
    Party party({1, 1, 1});
    Config config = quiet();
    config.timeout = std::chrono::milliseconds(2000);
    std::vector<Status> outcomes(3);
    party.run(config, [&](Rank& me, Communicator& comm) {
      Bytes data = pattern(kBytes, 1);
      ASSERT_TRUE(comm.bcast(data.data(), kBytes, 0).ok());
      Backwards view = me.rank == 0 ? Backwards(data) : Backwards(kBytes);
      if (me.rank == failing) view.fails_at = kBytes / 2;
      const Result<bool> served = comm.bcast_view(view, kBytes, 0);
      Status& mine = outcomes[static_cast<std::size_t>(me.rank)];
      mine = served.status();
      // The root may be through with what a reader fails at.
      if (mine.ok()) mine = comm.barrier();
    });
    for (int r = 0; r < 3; ++r) {
      const Status& status = outcomes[static_cast<std::size_t>(r)];
      if (r == failing) {
        EXPECT_EQ(status.message(), "the disk is on fire");
      } else {
        EXPECT_EQ(status.code(), Code::peer_failed) << r << ": " << status.message();
      }
    }
  }
}

}  // namespace
}  // namespace heddle::test
