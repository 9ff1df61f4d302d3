// A team: the ranks of one node, over memory they share, with collectives that no point-to-point schedule
// expresses (write once, many read). Transports that have shared memory provide it; the engine runs the team
// verbs on it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.hpp"
#include "base/packed_view.hpp"

namespace heddle {

enum class TeamVerb : std::uint8_t { allreduce, reduce, bcast, allgather };

// One team operation in flight, owned by the caller; start fills it in, poll moves it. Plain state: no
// resources.
struct TeamOp {
  TeamVerb verb = TeamVerb::allreduce;
  const std::byte* in = nullptr;  // this rank's contribution (bcast: the source, at the root only)
  // Where the result goes; may equal `in`, and be null where none comes. Of an allgather there is room for
  // what each member has, one after the other; `in` may lie in its own place of it.
  std::byte* out = nullptr;
  PackedView* view = nullptr;  // bcast: instead of both, where the team reads views of so many bytes
  std::size_t count = 0;       // elements, that each member has
  std::size_t element_bytes = 1;
  FoldFn fold = nullptr;  // not for bcast and allgather
  FoldKind kind = 0;      // allreduce: what `fold` does, as members compare it; else 0
  int root = 0;           // member number, reduce and bcast; else 0
  // The team's own, which start sets. Not before: clearing it all (`rep stos`) took 3 to 15 ns of the 80 to
  // 95 of a small operation.
  std::uint64_t operation;  // number of this operation on the team
  std::uint64_t call;       // what it is, as members compare it
  std::uint64_t base;       // number of its first piece
  std::size_t piece;        // elements in a piece
  std::size_t step[3];      // pieces finished, per phase; small: members seen
  std::size_t slot;         // small: where in every member's part of the memory
  bool small;               // served from the small slots
  bool published;           // small: my payload is out
  bool agreed;              // large: those whose memory I read have started the same operation
  bool once;                // read from the root's own buffer, unless that cannot be
};

// What must be the same on all members.
struct TeamCall {
  TeamVerb verb = TeamVerb::allreduce;
  int root = 0;
  std::size_t bytes = 0;
  FoldKind kind = 0;
};
inline TeamCall call_of(const TeamOp& op) {
  return {op.verb, op.root, op.count * op.element_bytes, op.kind};
}
// Another member's operation in the place of one of this member's.
struct TeamClash {
  int member = -1;  // -1: there is none
  TeamCall theirs;
  TeamCall ours;
};

class Team {
 public:
  Team() = default;
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  virtual ~Team() = default;

  virtual int rank() const = 0;  // member number, 0 to size-1
  virtual int size() const = 0;

  // Every member starts the same operations in the same order (same verb, count, element size, kind, root);
  // one at a time.
  virtual void start(TeamOp& op) = 0;
  // Whether a bcast of so many bytes may be of a view, on this member alone as well.
  virtual bool reads_views(std::size_t /*bytes*/) const { return false; }
  // Moves the operation as far as it goes without waiting; true when this rank's part is finished. A view
  // that fails keeps the operation from ending.
  virtual bool poll(TeamOp& op) = 0;
  // The member that `op` waits for at this moment, or -1: for deadlines that must say who is missing.
  virtual int missing(const TeamOp& op) const = 0;
  // Grows as `op` goes on here.
  virtual std::uint64_t passed(const TeamOp& op) const = 0;
  // Whether another member is known to have started something else in the place of `op`. Such an operation
  // does not end, here or there, and the data of the one is never taken for the other's. Not known: that of
  // members who have nothing to give, as the others of two who both think they are the root.
  virtual TeamClash clash(const TeamOp& op) const = 0;

  // Ends this member's part, whatever is under way: the last call but those of its own word. Other members
  // may be late for that and read this one's buffers, which are the caller's again; what they find there they
  // do not take for the operation's.
  virtual void withdraw() = 0;
  // A member that has; -1: none. For those who read what members lend each other beside the team: asked
  // afterwards, and before an operation that these members must be in, it tells whether what was read was
  // theirs to read.
  virtual int withdrawn() const = 0;

  // A word of each member's, 0 at first, which the others may read at any time. What a member told before it
  // started an operation is seen by those who have completed it, where the operation folds.
  virtual void tell(std::uint64_t word) = 0;
  virtual std::uint64_t told(int member) const = 0;
};

}  // namespace heddle
