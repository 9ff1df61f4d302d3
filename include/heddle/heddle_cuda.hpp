// Collectives on streams of CUDA for C++20: a thin face over heddle_cuda.h, header only. What heddle.hpp says of names and errors holds here; memory, order, threads
// and CUDA graphs are as heddle_cuda.h says.
//
//     heddle::api::Comm comm = heddle::api::Comm::from_environment();
//     heddle::api::allreduce_on_stream(comm, stream, std::span<const float>(in, n), std::span(out, n));
#ifndef HEDDLE_HEDDLE_CUDA_HPP
#define HEDDLE_HEDDLE_CUDA_HPP

#include <span>
#include <string>
#include <type_traits>

#include "heddle/heddle.hpp"
#include "heddle/heddle_cuda.h"

namespace heddle::api {

// CUstream, or cudaStream_t.
using Stream = ::CUstream_st*;

// `in` and `out`, in the memory of the ranks' GPUs, have one length and do not overlap. Collective.
template <typename T>
void allreduce_on_stream(const Comm& comm, Stream stream, std::span<const T> in, std::span<T> out,
                         Op op = Op::sum) {
  if (in.size() != out.size())
    throw Error(HEDDLE_ERR_ARGUMENT,
                "in has " + std::to_string(in.size()) + " elements, out has " + std::to_string(out.size()));
  check(heddle_allreduce_on_stream(in.data(), out.data(), in.size(), dtype_of<T>::value,
                                   static_cast<heddle_op>(op), comm.handle(), stream));
}
template <typename T>
void allreduce_in_place_on_stream(const Comm& comm, Stream stream, std::span<T> data, Op op = Op::sum) {
  check(heddle_allreduce_on_stream(HEDDLE_IN_PLACE, data.data(), data.size(), dtype_of<T>::value,
                                   static_cast<heddle_op>(op), comm.handle(), stream));
}
template <typename T>
void bcast_on_stream(const Comm& comm, Stream stream, std::span<T> data, int root = 0) {
  static_assert(std::is_trivially_copyable_v<T>);
  check(heddle_bcast_on_stream(data.data(), data.size_bytes(), root, comm.handle(), stream));
}

}  // namespace heddle::api

#endif
