// Every kernel of sparse vectors. X(name, ...), where i32 and i64 in names are the indices' widths.
#pragma once

#include "gpu/kernels/bitmaps.hpp"
#include "gpu/kernels/deltas.hpp"
#include "gpu/kernels/dequantise.hpp"
#include "gpu/kernels/entries.hpp"
#include "gpu/kernels/halves.hpp"
#include "gpu/kernels/largest.hpp"
#include "gpu/kernels/merge.hpp"
#include "gpu/kernels/quantise.hpp"
#include "gpu/kernels/scatter.hpp"
#include "gpu/kernels/signs.hpp"
#include "gpu/kernels/spread.hpp"

// (clang-format would indent it a little further each time.)
// clang-format off
// X(name, bits of a value, index, what it is for)
#define HEDDLE_SELECT_KERNELS(X) \
  X(select_16_i32, std::uint16_t, std::uint32_t, Pass::plain) X(select_16_i64, std::uint16_t, std::uint64_t, Pass::plain) \
  X(select_32_i32, std::uint32_t, std::uint32_t, Pass::plain) X(select_32_i64, std::uint32_t, std::uint64_t, Pass::plain) \
  X(select_64_i32, std::uint64_t, std::uint32_t, Pass::plain) X(select_64_i64, std::uint64_t, std::uint64_t, Pass::plain) \
  X(select_listed_i32, std::uint32_t, std::uint32_t, Pass::listing) X(select_listed_i64, std::uint32_t, std::uint64_t, Pass::listing) \
  X(select_found_i32, std::uint32_t, std::uint32_t, Pass::found) X(select_found_i64, std::uint32_t, std::uint64_t, Pass::found)

// X(name, element, index, operation)
#define HEDDLE_SCATTER_WIDTHS(X, suffix, Element, Operation) \
  X(suffix##_i32, Element, std::uint32_t, Operation) X(suffix##_i64, Element, std::uint64_t, Operation)
#define HEDDLE_SCATTER_KERNELS(X) \
  HEDDLE_SCATTER_WIDTHS(X, scatter_16, Plain<std::uint16_t>, Set) \
  HEDDLE_SCATTER_WIDTHS(X, scatter_32, Plain<std::uint32_t>, Set) \
  HEDDLE_SCATTER_WIDTHS(X, scatter_64, Plain<std::uint64_t>, Set) \
  HEDDLE_SCATTER_WIDTHS(X, scatter_add_f16, Half, AnySum) \
  HEDDLE_SCATTER_WIDTHS(X, scatter_add_bf16, BrainFloat, AnySum) \
  HEDDLE_SCATTER_WIDTHS(X, scatter_add_f32, Plain<float>, AnySum) \
  HEDDLE_SCATTER_WIDTHS(X, scatter_add_f64, Plain<double>, AnySum) \
  HEDDLE_SCATTER_WIDTHS(X, scatter_add_i32, Plain<std::int32_t>, AnySum) \
  HEDDLE_SCATTER_WIDTHS(X, scatter_add_i64, Plain<std::int64_t>, AnySum)

// X(name, bits of a value, index)
#define HEDDLE_SPREAD_KERNELS(X) \
  X(spread_16_i32, std::uint16_t, std::uint32_t) X(spread_16_i64, std::uint16_t, std::uint64_t) \
  X(spread_32_i32, std::uint32_t, std::uint32_t) X(spread_32_i64, std::uint32_t, std::uint64_t) \
  X(spread_64_i32, std::uint64_t, std::uint32_t) X(spread_64_i64, std::uint64_t, std::uint64_t)

// X(name, element, index that all of the vectors' fit into)
#define HEDDLE_MERGE_WIDTHS(X, suffix, Element) \
  X(suffix##_i32, Element, std::uint32_t) X(suffix##_i64, Element, std::uint64_t)
#define HEDDLE_MERGE_KERNELS(X) \
  HEDDLE_MERGE_WIDTHS(X, merge_f16, Half) HEDDLE_MERGE_WIDTHS(X, merge_bf16, BrainFloat) \
  HEDDLE_MERGE_WIDTHS(X, merge_f32, Plain<float>) HEDDLE_MERGE_WIDTHS(X, merge_f64, Plain<double>) \
  HEDDLE_MERGE_WIDTHS(X, merge_i32, Plain<std::int32_t>) HEDDLE_MERGE_WIDTHS(X, merge_i64, Plain<std::int64_t>)

// X(name, index)
#define HEDDLE_CHECK_KERNELS(X) X(check_entries_i32, std::uint32_t) X(check_entries_i64, std::uint64_t)
#define HEDDLE_FORGET_KERNELS(X) X(forget_entries_i32, std::uint32_t) X(forget_entries_i64, std::uint64_t)

#define HEDDLE_PACK_BITMAP_KERNELS(X) X(pack_bitmap_i32, std::uint32_t) X(pack_bitmap_i64, std::uint64_t)
#define HEDDLE_UNPACK_BITMAP_KERNELS(X) X(unpack_bitmap_i32, std::uint32_t) X(unpack_bitmap_i64, std::uint64_t)
#define HEDDLE_PACK_DELTA_KERNELS(X) X(pack_delta_i32, std::uint32_t) X(pack_delta_i64, std::uint64_t)
#define HEDDLE_UNPACK_DELTA_KERNELS(X) X(unpack_delta_i32, std::uint32_t) X(unpack_delta_i64, std::uint64_t)

// X(name, codec), where the number is that of bits of a code
#define HEDDLE_QUANTISE_KERNELS(X) \
  X(quantise_8, Levels<8>) X(quantise_4, Levels<4>) X(quantise_2, Levels<2>) X(quantise_1, Signs) \
  X(quantise_f16, Halves<Half>) X(quantise_bf16, Halves<BrainFloat>)
#define HEDDLE_DEQUANTISE_KERNELS(X) \
  X(dequantise_8, Levels<8>) X(dequantise_4, Levels<4>) X(dequantise_2, Levels<2>) X(dequantise_1, Signs) \
  X(dequantise_f16, Halves<Half>) X(dequantise_bf16, Halves<BrainFloat>)
// clang-format on
