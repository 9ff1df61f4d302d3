// The verifier: proves a collective by running all ranks' schedules symbolically.
#pragma once

#include <cstdint>
#include <functional>

#include "base/status.hpp"
#include "schedule/schedule.hpp"
#include "schedule/topology_view.hpp"

namespace heddle {

// What is proved, for the given topology:
//  - structure: step fields in range, repeats do not nest, chunk ranges never wrap, scratch in bounds,
//  max_open true,
//    schedules of all ranks agree on collective, root and chunk count, of an allgather a chunk for each rank;
//  - progress: no deadlock when every send completes only after its receive was opened (rendezvous);
//  - messages: every send meets a receive of the same chunks and the other way round, nothing left over;
//  - memory: nothing is written while an open send reads or an open receive writes it, nothing read while an
//  open
//    receive writes it; nothing is read that was never written;
//  - result, allreduce: every rank ends with the same expression per chunk, in which each rank's input occurs
//  exactly
//    once; with `in_order` set, in rank order. reduce: the root does, and what the others hold is nobody's.
//    bcast: every rank ends with the root's value in every chunk. allgather: with each rank's in its chunk.
//    A barrier is proved as an allreduce of its chunks: who ends with every rank's contribution has heard of
//    every rank's arrival, so any allreduce over zero bytes is a barrier;
//  - the input slot is never written (it may be `data` itself: a schedule that reads `input` after writing
//  `data` of
//    the same chunk is wrong, because in place they are the same memory).
// The status is `internal` and names rank, step number (from 0), iteration and chunks of the first violation.
// Asks for each rank's schedule once. Time and memory: about those of one real run on one element per chunk,
// with repeats rolled.
Status verify(const TopologyView& topology, const std::function<Schedule(std::int32_t rank)>& schedule_of);

}  // namespace heddle
