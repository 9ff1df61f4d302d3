// Some ints as datatypes of many kinds: for calls that MPI lets ranks describe with other types of one
// signature.
#pragma once

#include <cstddef>
#include <numeric>
#include <vector>

#include "job.hpp"

namespace job {

// One way to describe `n` ints: where they lie, as a datatype and a count.
struct Layout {
  const char* name = "";
  MPI_Datatype type = MPI_INT;
  int count = 0;
  bool derived = false;
  std::vector<std::size_t> place;  // of each int, in the order of the type map, in units of int
  std::size_t origin = 0;          // where the buffer begins, in units of int
};

inline constexpr std::size_t kRoom = 4;  // ints of memory per int of data, at most

inline Layout basic(int n) {
  Layout l;
  l.name = "basic";
  l.count = n;
  l.place.resize(static_cast<std::size_t>(n));
  std::iota(l.place.begin(), l.place.end(), std::size_t{0});
  return l;
}

inline Layout bytes(int n) {
  Layout l = basic(n);
  l.name = "contiguous of int";
  l.count = 1;
  l.derived = true;
  MPI_Type_contiguous(n, MPI_INT, &l.type);
  return l;
}

inline Layout strided(int n) {
  Layout l;
  l.name = "vector, resized";
  MPI_Datatype vector;
  MPI_Type_vector(1, 1, 3, MPI_INT, &vector);
  MPI_Type_create_resized(vector, 0, 3 * sizeof(int), &l.type);
  MPI_Type_free(&vector);
  l.count = n;
  l.derived = true;
  for (int i = 0; i < n; ++i)
    l.place.push_back(static_cast<std::size_t>(i) * 3);
  return l;
}

inline Layout one_vector(int n) {
  Layout l;
  l.name = "one vector";
  MPI_Type_vector(n, 1, 2, MPI_INT, &l.type);
  l.count = 1;
  l.derived = true;
  for (int i = 0; i < n; ++i)
    l.place.push_back(static_cast<std::size_t>(i) * 2);
  return l;
}

// Same size, extent and memory as n ints, but visited backwards.
inline Layout backwards(int n) {
  Layout l;
  l.name = "hindexed, backwards";
  std::vector<int> lengths(static_cast<std::size_t>(n), 1);
  std::vector<MPI_Aint> places;
  for (int i = n - 1; i >= 0; --i) {
    places.push_back(static_cast<MPI_Aint>(i) * static_cast<MPI_Aint>(sizeof(int)));
    l.place.push_back(static_cast<std::size_t>(i));
  }
  MPI_Type_create_hindexed(n, lengths.data(), places.data(), MPI_INT, &l.type);
  l.count = 1;
  l.derived = true;
  return l;
}

// A struct of runs with gaps between them.
inline Layout runs(int n) {
  Layout l;
  l.name = "struct";
  const int first = n / 2;
  const int lengths[2] = {first, n - first};
  const MPI_Aint places[2] = {static_cast<MPI_Aint>((first + 3) * sizeof(int)), 0};
  const MPI_Datatype types[2] = {MPI_INT, MPI_INT};
  // The second run lies in front of the first.
  const int shift = n - first;
  const MPI_Aint moved[2] = {places[0] + static_cast<MPI_Aint>(shift * static_cast<int>(sizeof(int))), 0};
  MPI_Type_create_struct(2, lengths, moved, types, &l.type);
  for (int i = 0; i < first; ++i)
    l.place.push_back(static_cast<std::size_t>(first + 3 + shift + i));
  for (int i = 0; i < n - first; ++i)
    l.place.push_back(static_cast<std::size_t>(i));
  l.count = 1;
  l.derived = true;
  return l;
}

// Absolute addresses, used with MPI_BOTTOM.
inline Layout absolute(int n, int* memory) {
  Layout l = basic(n);
  l.name = "absolute addresses";
  MPI_Aint address = 0;
  MPI_Get_address(memory, &address);
  MPI_Type_create_hindexed(1, &n, &address, MPI_INT, &l.type);
  l.count = 1;
  l.derived = true;
  return l;
}

// Made by a function for large counts: MPICH tells what it is made of to such functions alone.
inline Layout large_counts(int n) {
#if MPI_VERSION >= 4
  Layout l = basic(n);
  l.name = "contiguous of contiguous, large counts";
  MPI_Datatype inner;
  MPI_Type_contiguous_c(n, MPI_INT, &inner);
  MPI_Type_contiguous(1, inner, &l.type);
  MPI_Type_free(&inner);
  l.count = 1;
  l.derived = true;
  return l;
#else
  return bytes(n);
#endif
}

// Of a type that the MPI has made once, and that is not the program's to free, nor predefined by a name.
inline Layout parametrised(int n) {
  Layout l = basic(n);
  l.name = "contiguous of MPI_Type_create_f90_integer";
  MPI_Datatype integer;
  MPI_Type_create_f90_integer(9, &integer);
  MPI_Type_contiguous(n, integer, &l.type);
  l.count = 1;
  l.derived = true;
  return l;
}

inline Layout vector_backwards(int n) {
  Layout l;
  l.name = "one vector, backwards";
  MPI_Type_vector(n, 1, -2, MPI_INT, &l.type);
  l.count = 1;
  l.derived = true;
  l.origin = static_cast<std::size_t>(n - 1) * 2 + 3;
  for (int i = 0; i < n; ++i)
    l.place.push_back(l.origin - static_cast<std::size_t>(i) * 2);
  return l;
}

// Not made of loops as vectors are.
inline Layout structs(int n) {
  Layout l;
  l.name = "structs with holes";
  const int length = 1;
  const MPI_Aint place = sizeof(int);
  const MPI_Datatype type = MPI_INT;
  MPI_Datatype one;
  MPI_Type_create_struct(1, &length, &place, &type, &one);
  MPI_Type_create_resized(one, 0, 3 * sizeof(int), &l.type);
  MPI_Type_free(&one);
  l.count = n;
  l.derived = true;
  for (int i = 0; i < n; ++i)
    l.place.push_back(static_cast<std::size_t>(i) * 3 + 1);
  return l;
}

inline Layout nested(int n) {
  Layout l;
  l.name = "contiguous of resized";
  MPI_Datatype apart;
  MPI_Type_create_resized(MPI_INT, 0, 4 * sizeof(int), &apart);
  MPI_Type_contiguous(n, apart, &l.type);
  MPI_Type_free(&apart);
  l.count = 1;
  l.derived = true;
  for (int i = 0; i < n; ++i)
    l.place.push_back(static_cast<std::size_t>(i) * 4);
  return l;
}

inline Layout column(int n) {
  Layout l;
  l.name = "column of a matrix";
  const int sizes[2] = {n, 3};
  const int parts[2] = {n, 1};
  const int starts[2] = {0, 1};
  MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_C, MPI_INT, &l.type);
  l.count = 1;
  l.derived = true;
  for (int i = 0; i < n; ++i)
    l.place.push_back(static_cast<std::size_t>(i) * 3 + 1);
  return l;
}

inline constexpr int kLayouts = 13;
inline constexpr int kOfOneSignature = 12;
inline Layout make_layout(int which, int n, int* memory) {
  switch (which) {
    case 0:
      return basic(n);
    case 1:
      return bytes(n);
    case 2:
      return strided(n);
    case 3:
      return one_vector(n);
    case 4:
      return backwards(n);
    case 5:
      return runs(n);
    case 6:
      return absolute(n, memory);
    case 7:
      return large_counts(n);
    case 8:
      return vector_backwards(n);
    case 9:
      return structs(n);
    case 10:
      return nested(n);
    case 11:
      return column(n);
    default:
      return parametrised(n);
  }
}

inline constexpr int kAbsolute = 6;  // of these: with MPI_BOTTOM
inline void* buffer_of(const Layout& layout, int which, int* memory) {
  return which == kAbsolute ? MPI_BOTTOM : memory + layout.origin;
}

}  // namespace job
