// Between start and completion the engine does not allocate: from the second run on nothing does.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <vector>

#include "engine/payload.hpp"
#include "select/catalog.hpp"
#include "support/schedule_world.hpp"

namespace {
thread_local bool counting = false;
thread_local std::size_t allocations = 0;

void* counted(std::size_t bytes) {
  if (counting) ++allocations;
  void* p = std::malloc(bytes == 0 ? 1 : bytes);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
}  // namespace

// Not inlined: where the compiler sees malloc on one side and `new` on the other it warns of a mismatch that
// is not one.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return counted(bytes);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes) {
  return counted(bytes);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  if (counting) ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete[](void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete[](void* p, std::size_t) noexcept {
  std::free(p);
}

namespace heddle::test {
namespace {

TEST(NoAllocation, TheCounterCounts) {
  allocations = 0;
  counting = true;
  // Calls, not new-expressions: those a compiler may leave out.
  void* one = ::operator new(8);
  void* many = ::operator new[](8);
  counting = false;
  ::operator delete(one);
  ::operator delete[](many);
  EXPECT_EQ(allocations, 2U);
}

TEST(NoAllocation, FromTheSecondRunOn) {
  for (const int ranks : {2, 4, 7}) {
    for (const TopologyView& topology : {TopologyView::flat(ranks), TopologyView::one_node(ranks)}) {
      ScheduleWorld world(topology, std::make_unique<ShmWorld>(ranks));
      for (const Algorithm& a : catalog()) {
        if (a.needs_team && !a.needs_messages && topology.nodes() > 1) continue;
        std::vector<std::unique_ptr<Execution>> owned;
        std::vector<std::vector<std::byte>> data;
        for (int r = 0; r < ranks; ++r) {
          owned.push_back(std::make_unique<Execution>(
              std::make_shared<const Schedule>(a.build(topology, r, a.shapes(topology, 1 << 20).back())),
              world.of(r)));
          data.emplace_back(40'000);
        }
        std::vector<bool> done(static_cast<std::size_t>(ranks));
        for (std::uint32_t run = 1; run <= 3; ++run) {
          done.assign(done.size(), false);
          allocations = 0;
          counting = run > 1;
          for (std::size_t r = 0; r < owned.size(); ++r) {
            Binding b;
            b.data = data[r].data();
            b.input = data[r].data();
            b.count = data[r].size();
            b.fold = fold_kernel(DType::u8, Op::bor);
            b.sequence = run;
            ASSERT_TRUE(owned[r]->start(b).ok());
          }
          for (std::size_t left = owned.size(); left > 0;) {
            for (std::size_t r = 0; r < owned.size(); ++r) {
              bool finished = false;
              if (done[r]) continue;
              ASSERT_TRUE(owned[r]->poll(&finished).ok());
              if (!finished) continue;
              done[r] = true;
              --left;
            }
          }
          counting = false;
          EXPECT_EQ(allocations, 0U) << a.name << ", " << ranks << " ranks, run " << run;
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::test
