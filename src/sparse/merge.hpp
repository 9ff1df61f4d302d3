// Merging sparse streams.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.hpp"
#include "sparse/stream.hpp"

namespace heddle {

// The entries of `a` and `b`, which keep the contract and have the same dimension and types: those of equal index folded as `a op b`, with
// the bits that the dense kernels give (of two NaNs either may be the one that is kept); an entry that only one of them has is taken over bit for bit, as if the other had the
// operation's neutral element. `op`: sum, min or max. Writes to `indices` and `values`, which have room for a.count + b.count entries, need
// no alignment and overlap neither; returns how many were written. Memory traffic: each entry read once and written once.
std::size_t merge_sparse(const SparseView& a, const SparseView& b, Op op, void* indices, void* values);

std::size_t fold_sparse(std::span<const SparseView> streams, Op op, void* indices, void* values);

}  // namespace heddle
