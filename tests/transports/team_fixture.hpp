// What the tests of teams share: memory for a team, contributions and folds that show every mix-up, and
// buffers with guard pages.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/dtype.hpp"
#include "transports/shm/shared_memory.hpp"
#include "transports/shm/shm_team.hpp"

namespace heddle::test {

struct TeamWorld {
  TeamWorld(int members, std::size_t slot_bytes, std::size_t small_reads = kSmallReads) {
    geometry = {members, slot_bytes, small_reads};
    memory = SharedMemory::create(geometry.bytes(), SharedMemory::Backing::memfd).value();
    for (int m = 0; m < members; ++m)
      teams.push_back(make_shm_team(memory.data(), geometry, m));
  }
  // In the process that it is used in from now on.
  void make_again(int member) {
    teams[static_cast<std::size_t>(member)] = make_shm_team(memory.data(), geometry, member);
  }
  ShmTeam& of(int member) { return *teams[static_cast<std::size_t>(member)]; }
  ShmTeamGeometry geometry;
  SharedMemory memory;
  std::vector<std::unique_ptr<ShmTeam>> teams;
};

// Another way of storing small payloads for each `number` and member: members need not agree.
inline SmallStores stores_for(std::uint64_t number, int member) {
  const std::uint64_t n = number + static_cast<std::uint64_t>(member);
  return {static_cast<StoreWay>(n % 3), static_cast<StoreWay>(n / 3 % 3)};
}

struct Wide {
  std::uint64_t a;
  std::uint64_t b;
};

// Neither commutative nor associative: only the left fold in member order gives this value.
template <typename T>
T mix(T left, T right) {
  if constexpr (sizeof(T) == 16) {
    return {left.a * 31 + right.b, left.b * 37 + right.a};
  } else {
    return static_cast<T>(left * T{31} + right);
  }
}

template <typename T>
void mix_fold(void* out, void* out2, const void* const* inputs, unsigned n_inputs, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, static_cast<const std::byte*>(inputs[0]) + i * sizeof(T), sizeof(T));
    for (unsigned m = 1; m < n_inputs; ++m) {
      T next;
      std::memcpy(&next, static_cast<const std::byte*>(inputs[m]) + i * sizeof(T), sizeof(T));
      value = mix(value, next);
    }
    std::memcpy(static_cast<std::byte*>(out) + i * sizeof(T), &value, sizeof(T));
    if (out2 != nullptr) std::memcpy(static_cast<std::byte*>(out2) + i * sizeof(T), &value, sizeof(T));
  }
}

// What member `m` contributes to operation `op` at element i.
template <typename T>
T contribution(std::uint64_t op, int m, std::size_t i) {
  const std::uint64_t x = (op * 0x9e3779b97f4a7c15ULL) ^
                          ((static_cast<std::uint64_t>(m) + 1) * 0xc2b2ae3d27d4eb4fULL) ^
                          (i * 0x165667b19e3779f9ULL);
  if constexpr (sizeof(T) == 16) {
    return {x, x >> 7};
  } else {
    return static_cast<T>(x >> 23);
  }
}

// An element type by its size: everything a test needs of it, without the type.
struct Element {
  std::size_t bytes;
  FoldFn fold;
  void (*contribute)(std::byte* to, std::uint64_t op, int member, std::size_t count);
  // Index of the first wrong element, or `count`. Members' contributions folded, or member `only`'s when not
  // -1.
  std::size_t (*first_wrong)(const std::byte* got, std::uint64_t op, int members, int only,
                             std::size_t count);
};

template <typename T>
constexpr Element element() {
  return {sizeof(T), &mix_fold<T>,
          [](std::byte* to, std::uint64_t op, int member, std::size_t count) {
            for (std::size_t i = 0; i < count; ++i) {
              const T value = contribution<T>(op, member, i);
              std::memcpy(to + i * sizeof(T), &value, sizeof(T));
            }
          },
          [](const std::byte* got, std::uint64_t op, int members, int only, std::size_t count) {
            for (std::size_t i = 0; i < count; ++i) {
              T value = contribution<T>(op, only < 0 ? 0 : only, i);
              for (int m = 1; only < 0 && m < members; ++m)
                value = mix(value, contribution<T>(op, m, i));
              if (std::memcmp(got + i * sizeof(T), &value, sizeof(T)) != 0) return i;
            }
            return count;
          }};
}

inline const std::array<Element, 5>& elements() {
  static const std::array<Element, 5> all{element<std::uint8_t>(), element<std::uint16_t>(),
                                          element<std::uint32_t>(), element<std::uint64_t>(),
                                          element<Wide>()};
  return all;
}

// Memory between two pages that nobody may touch.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(std::size_t capacity) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    size_ = (capacity + page - 1) / page * page;
    mapped_ = size_ + 2 * page;
    base_ = static_cast<std::byte*>(
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    first_ = base_ + page;
    mprotect(base_, page, PROT_NONE);
    mprotect(first_ + size_, page, PROT_NONE);
  }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;
  ~GuardedBuffer() { munmap(base_, mapped_); }

  // `bytes` bytes `slack` before the upper guard page; the bytes around them are marked.
  std::byte* place(std::size_t bytes, std::size_t slack) {
    placed_ = first_ + size_ - slack - bytes;
    bytes_ = bytes;
    slack_ = slack;
    below_ = std::min<std::size_t>(128, static_cast<std::size_t>(placed_ - first_));
    std::memset(placed_ - below_, 0xa5, below_ + bytes + slack);
    return placed_;
  }
  // Whether the marks around the placed bytes are intact.
  bool intact() const {
    for (std::size_t i = 1; i <= below_; ++i) {
      if (placed_[-static_cast<std::ptrdiff_t>(i)] != std::byte{0xa5}) return false;
    }
    for (std::size_t i = 0; i < slack_; ++i) {
      if (placed_[bytes_ + i] != std::byte{0xa5}) return false;
    }
    return true;
  }

 private:
  std::byte* base_;
  std::byte* first_;
  std::size_t size_;
  std::size_t mapped_;
  std::byte* placed_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t slack_ = 0;
  std::size_t below_ = 0;
};

// One operation, equal on all members, and how a member runs and checks it.
struct TeamCase {
  TeamVerb verb = TeamVerb::allreduce;
  std::size_t count = 0;
  std::size_t element = 0;  // of elements()
  int root = 0;
  bool in_place = false;
  std::size_t slack = 0;
};

class TeamMember {
 public:
  // `capacity`: bytes; of an allgather, of all members' together.
  TeamMember(Team& team, std::size_t capacity) : team_(team), in_(capacity + 64), out_(capacity + 64) {}

  // `pause()` is called between polls.
  template <typename Pause>
  void run(const TeamCase& c, std::uint64_t number, Pause pause) {
    if (c.verb == TeamVerb::allgather) return gather(c, number, pause);
    const Element& e = elements()[c.element];
    const std::size_t bytes = c.count * e.bytes;
    const bool bcast = c.verb == TeamVerb::bcast;
    std::byte* in = in_.place(bytes, c.slack);
    std::byte* out = c.in_place || bcast ? in : out_.place(bytes, c.slack);
    const bool gives = !bcast || team_.rank() == c.root;
    if (gives) e.contribute(in, number, team_.rank(), c.count);
    TeamOp op;
    op.verb = c.verb;
    op.in = in;
    op.out = out;
    op.count = c.count;
    op.element_bytes = e.bytes;
    op.fold = bcast ? nullptr : e.fold;
    op.root = c.root;
    team_.start(op);
    while (!team_.poll(op))
      pause();
    const bool gets = c.verb == TeamVerb::allreduce || bcast || team_.rank() == c.root;
    if (gets) {
      ASSERT_EQ(e.first_wrong(out, number, team_.size(), bcast ? c.root : -1, c.count), c.count)
          << describe(c, number);
    }
    if (out != in || !gets) {
      ASSERT_EQ(e.first_wrong(in, number, 1, team_.rank(), c.count), c.count)
          << "input changed: " << describe(c, number);
    }
    ASSERT_TRUE(in_.intact() && (out == in || out_.intact())) << "written outside: " << describe(c, number);
  }

 private:
  template <typename Pause>
  void gather(const TeamCase& c, std::uint64_t number, Pause pause) {
    const Element& e = elements()[c.element];
    const std::size_t bytes = c.count * e.bytes;
    const auto members = static_cast<std::size_t>(team_.size());
    std::byte* const out = out_.place(members * bytes, c.slack);
    std::byte* const own = out + static_cast<std::size_t>(team_.rank()) * bytes;
    std::byte* const in = c.in_place ? own : in_.place(bytes, c.slack);
    e.contribute(in, number, team_.rank(), c.count);
    TeamOp op;
    op.verb = c.verb;
    op.in = in;
    op.out = out;
    op.count = c.count;
    op.element_bytes = e.bytes;
    team_.start(op);
    while (!team_.poll(op))
      pause();
    for (std::size_t m = 0; m < members; ++m)
      ASSERT_EQ(e.first_wrong(out + m * bytes, number, 1, static_cast<int>(m), c.count), c.count)
          << "of member " << m << ": " << describe(c, number);
    ASSERT_TRUE(out_.intact() && (in == own || in_.intact())) << "written outside: " << describe(c, number);
    if (in != own) {
      ASSERT_EQ(e.first_wrong(in, number, 1, team_.rank(), c.count), c.count) << "input changed";
    }
  }

  std::string describe(const TeamCase& c, std::uint64_t number) const {
    const char* verbs[] = {"allreduce", "reduce", "bcast", "allgather"};
    return "member " + std::to_string(team_.rank()) + " of " + std::to_string(team_.size()) + ", operation " +
           std::to_string(number) + ": " + verbs[static_cast<int>(c.verb)] + " of " +
           std::to_string(c.count) + " x " + std::to_string(elements()[c.element].bytes) + " bytes, root " +
           std::to_string(c.root) + (c.in_place ? ", in place" : "");
  }

  Team& team_;
  GuardedBuffer in_;
  GuardedBuffer out_;
};

}  // namespace heddle::test
