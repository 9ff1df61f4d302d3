// Merging sparse streams.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.hpp"
#include "sparse/stream.hpp"

namespace heddle {

// The entries that any of the streams has, in order of their indices; entries of equal index are folded from
// left to right, in the order of `streams`, with the bits that the dense kernels give (f16 and bf16: folded
// in f32, rounded once). `op`: sum, min or max.
//
// An entry that a stream lacks counts as +0 in a sum, as it does in a dense vector: -0 comes out only where
// all streams have it. For min and max it does not count, and an entry that one stream alone has is taken
// over bit for bit. One stream is copied.
//
// The streams keep the contract and have the same dimension and types. Writes to `indices` and `values`,
// which have room for the sum of the counts, need no alignment and overlap nothing; returns how many entries
// there are. What lies behind them in that room may have been overwritten too. Takes memory for a few
// thousand entries.
std::size_t fold_sparse(std::span<const SparseView> streams, Op op, void* indices, void* values);

}  // namespace heddle
