// Registrations are never stale, and never left behind.
#include "transports/verbs/registration.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <map>
#include <vector>

namespace heddle::verbs {
namespace {

constexpr std::size_t kPage = 4096;

// Remembers which memory each registration leads to, by what was written there when it was made: as a device,
// which keeps the pages that were there, or, following page tables, those that are there now.
class FakeDevice final : public MemoryPinner {
 public:
  explicit FakeDevice(bool follows) : follows_(follows) {}
  Result<Pinned> pin(const void* data, std::size_t, bool) override {
    if (refuses) return Status(Code::out_of_memory, "no more");
    ++pins;
    const std::uint32_t key = next_key_++;
    pages_[key] = {static_cast<const int*>(data), *static_cast<const int*>(data)};
    return Pinned{reinterpret_cast<void*>(std::uintptr_t{key}), {key, key}};
  }
  void unpin(void* handle) override {
    EXPECT_EQ(pages_.erase(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(handle))), 1U);
  }
  bool follows_page_tables() const override { return follows_; }

  int read_through(std::uint32_t key) const {
    const auto& [address, then] = pages_.at(key);
    return follows_ ? *address : then;
  }
  std::size_t pinned() const { return pages_.size(); }
  int pins = 0;
  bool refuses = false;

 private:
  bool follows_;
  std::uint32_t next_key_ = 1;
  std::map<std::uint32_t, std::pair<const int*, int>> pages_;
};

int* map_at(void* address, int content) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (address != nullptr ? MAP_FIXED : 0);
  auto* const memory = static_cast<int*>(mmap(address, kPage, PROT_READ | PROT_WRITE, flags, -1, 0));
  *memory = content;
  return memory;
}

class VerbsRegistration : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Devices, VerbsRegistration, ::testing::Values(false, true),
                         [](const auto& kind) { return kind.param ? "on_demand" : "pinning"; });

TEST_P(VerbsRegistration, MemoryFreedAndMappedAgainIsTheNewOne) {
  FakeDevice device(GetParam());
  Registrations registrations(device);
  int* memory = map_at(nullptr, 1);
  for (int round = 1; round < 50; ++round) {
    Registrations::Lease lease = registrations.take(memory, kPage, true).value();
    EXPECT_EQ(device.read_through(lease.keys.remote), round);
    registrations.give_back(lease);
    EXPECT_EQ(lease.number, 0U);
    munmap(memory, kPage);
    memory = map_at(memory, round + 1);
  }
  munmap(memory, kPage);
}

TEST_P(VerbsRegistration, MessagesAtTheSameTimeShareOne) {
  FakeDevice device(GetParam());
  Registrations registrations(device);
  std::vector<int> memory(1000, 3);
  Registrations::Lease whole = registrations.take(memory.data(), 4000, true).value();
  Registrations::Lease part = registrations.take(memory.data() + 10, 400, false).value();
  EXPECT_EQ(device.pins, 1);
  EXPECT_EQ(part.keys.local, whole.keys.local);
  registrations.give_back(whole);
  EXPECT_EQ(device.pinned(), 1U);  // the other one needs it
  registrations.give_back(part);
  EXPECT_EQ(device.pinned(), GetParam() ? 1U : 0U);
}

TEST_P(VerbsRegistration, NotWhereItDoesNotReachOrMayNotWrite) {
  FakeDevice device(GetParam());
  Registrations registrations(device);
  std::vector<int> memory(1000, 3);
  Registrations::Lease a = registrations.take(memory.data() + 100, 400, false).value();
  Registrations::Lease before = registrations.take(memory.data() + 99, 400, false).value();
  Registrations::Lease after = registrations.take(memory.data() + 100, 404, false).value();
  Registrations::Lease writes = registrations.take(memory.data() + 100, 400, true).value();
  EXPECT_EQ(device.pins, 4);
  for (Registrations::Lease* lease : {&a, &before, &after, &writes})
    registrations.give_back(*lease);
}

TEST_P(VerbsRegistration, NothingIsLeftAndNothingGrowsWithoutEnd) {
  FakeDevice device(GetParam());
  std::vector<int> memory(100000, 3);
  {
    Registrations registrations(device);
    for (std::size_t i = 0; i < 300; ++i) {
      Registrations::Lease lease = registrations.take(memory.data() + 300 * i, 400, true).value();
      registrations.give_back(lease);
      EXPECT_LE(registrations.size(), 65U);
    }
    EXPECT_EQ(device.pins, 300);
  }
  EXPECT_EQ(device.pinned(), 0U);
}

TEST_P(VerbsRegistration, ARefusalIsPassedOn) {
  FakeDevice device(GetParam());
  Registrations registrations(device);
  device.refuses = true;
  int memory = 0;
  EXPECT_EQ(registrations.take(&memory, 4, true).status().code(), Code::out_of_memory);
  EXPECT_EQ(registrations.size(), 0U);
  Registrations::Lease none;
  registrations.give_back(none);
}

// What its owner registered serves all messages in it, both ways, until the owner takes it back.
TEST_P(VerbsRegistration, MemoryOfOthers) {
  FakeDevice device(GetParam());
  Registrations registrations(device);
  std::vector<int> memory(1000, 3);
  const auto* const begin = reinterpret_cast<const std::byte*>(memory.data());
  const MemoryPinner::Pinned pinned = device.pin(begin, 4000, true).value();
  registrations.add(begin, 4000, pinned);
  EXPECT_EQ(device.pins, 1);
  for (int round = 0; round < 3; ++round) {
    Registrations::Lease in = registrations.take(memory.data() + 5, 100, true).value();
    Registrations::Lease out = registrations.take(memory.data(), 4000, false).value();
    EXPECT_EQ(in.keys.remote, pinned.keys.remote);
    EXPECT_EQ(out.keys.local, pinned.keys.local);
    registrations.give_back(in);
    registrations.give_back(out);
  }
  EXPECT_EQ(device.pins, 1);
  EXPECT_EQ(device.pinned(), 1U);
  registrations.remove(begin);
  EXPECT_EQ(device.pinned(), 0U);
  // Not known any more.
  Registrations::Lease later = registrations.take(memory.data(), 100, false).value();
  EXPECT_EQ(device.pins, 2);
  registrations.give_back(later);
}

}  // namespace
}  // namespace heddle::verbs
