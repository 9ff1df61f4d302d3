// A step of a schedule: what one rank does next, with chunks instead of pointers.
#pragma once

#include <cstdint>
#include <type_traits>

namespace heddle {

// Where a step reads or writes. `data` is the caller's result buffer (and, in place, also the input; of an
// allgather it has this rank's chunk from the start). `input` is the caller's source buffer; in place it is
// the same memory as `data`. `scratch` belongs to the engine,
// and so does the `data` of a reduce on ranks other than its root, where callers have no result buffer.
//
// `data` and `input` are divided into the schedule's chunks; a step addresses them by chunk number. `scratch`
// holds `scratch_units` units, each as large as the largest chunk range any step puts there; a step addresses
// it by unit.
enum class Slot : std::uint8_t { data = 0, input = 1, scratch = 2 };

// Which of its teams a rank uses for a team verb.
enum class TeamKind : std::uint8_t {
  node,    // the ranks of its node
  domain,  // of those, the ranks of its domain (what shares a last-level cache, or a NUMA node)
  peers,   // the ranks that have its place in the other domains of the node
};
inline constexpr int kTeamKinds = 3;

enum class StepKind : std::uint8_t {
  send,    // open a send of [chunk, chunk+count) from slot `src` to `peer`
  recv,    // open a receive of [chunk, chunk+count) into slot `dst` from `peer`
  reduce,  // dst = dst op src, or dst = src op dst with kSourceFirst, over [chunk, chunk+count)
  copy,    // dst = src over [chunk, chunk+count)
  wait,    // until at most `count` of the opened sends and receives are still open, oldest completed first
  repeat,  // run the next `peer` steps `count` times; in iteration i their chunk is (chunk + i*stride) mod
           // chunks
  team_reduce,     // fold `src` of all members of a team, in their order, into `dst` of member `peer`
  team_bcast,      // copy `src` of member `peer` of a team to `dst` of all others
  team_allreduce,  // fold `src` of all members of a team, in their order, into `dst` of every one of them
  team_allgather,  // of an allgather: copy chunk `chunk` + m of `data` of each member m to all others;
                   // `count` is how many members there are
};

enum StepFlags : std::uint8_t {
  kFixed = 1,        // inside a repeat: the chunk does not move with the iteration
  kSourceFirst = 2,  // reduce: the source is the left operand
  kRotate = 4,       // inside a repeat: the scratch unit is (unit + i) mod scratch_units
};

// 20 bytes, dispatched from a flat array. Holds no pointer, tag, byte count or datatype: a Binding supplies
// those.
//
// Messages between two ranks on one lane match in the order in which they are opened; different lanes are
// independent. A scratch operand always names its unit in `unit`; the chunk range says which chunks it holds,
// hence its length.
struct Step {
  StepKind kind;
  Slot dst;
  Slot src;
  std::uint8_t flags : 4;
  std::uint8_t lane : 4;  // team verbs: the TeamKind
  std::int32_t peer;      // rank; team verbs: member number within the team; repeat: steps in the body
  std::uint32_t chunk;    // first chunk; repeat: the stride, as a two's complement int32
  std::uint32_t count;    // chunks; wait: how many may stay open; repeat: iterations (0: the body is skipped)
  std::uint32_t unit;     // scratch unit

  TeamKind team() const { return static_cast<TeamKind>(lane); }
  std::int32_t stride() const { return static_cast<std::int32_t>(chunk); }
  friend bool operator==(const Step& a, const Step& b) {
    return a.kind == b.kind && a.dst == b.dst && a.src == b.src && a.flags == b.flags && a.lane == b.lane &&
           a.peer == b.peer && a.chunk == b.chunk && a.count == b.count && a.unit == b.unit;
  }
};
static_assert(sizeof(Step) == 20 && std::is_trivially_copyable_v<Step>);

inline constexpr int kLanes = 16;

// The chunk a step addresses in iteration `i` of the enclosing repeat (0 outside of one).
constexpr std::uint32_t chunk_at(const Step& step, std::int32_t stride, std::uint32_t i,
                                 std::uint32_t chunks) {
  if (i == 0 || (step.flags & kFixed) != 0) return step.chunk;
  const std::int64_t moved = static_cast<std::int64_t>(step.chunk) + static_cast<std::int64_t>(stride) * i;
  const std::int64_t wrapped = moved % static_cast<std::int64_t>(chunks);
  return static_cast<std::uint32_t>(wrapped < 0 ? wrapped + chunks : wrapped);
}

// The scratch unit a step addresses in iteration `i`.
constexpr std::uint32_t unit_at(const Step& step, std::uint32_t i, std::uint32_t units) {
  return (step.flags & kRotate) != 0 ? (step.unit + i) % units : step.unit;
}

}  // namespace heddle
