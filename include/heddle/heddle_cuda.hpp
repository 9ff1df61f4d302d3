// Collectives on streams of CUDA for C++20: a thin face over heddle_cuda.h, header only. What heddle.hpp says
// of names and errors holds here; memory, order, threads and CUDA graphs are as heddle_cuda.h says.
//
//     heddle::api::Comm comm = heddle::api::Comm::from_environment();
//     heddle::api::allreduce_on_stream(comm, stream, std::span(in, n), std::span(out, n));
#ifndef HEDDLE_HEDDLE_CUDA_HPP
#define HEDDLE_HEDDLE_CUDA_HPP

#include <ranges>
#include <span>

#include "heddle/heddle.hpp"
#include "heddle/heddle_cuda.h"

namespace heddle::api {

// CUstream, or cudaStream_t.
using Stream = ::CUstream_st*;

// `in` and `out`, in the memory of the ranks' GPUs, have one length and do not overlap. Collective.
template <Source In, Buffer Out>
void allreduce_on_stream(const Comm& comm, Stream stream, In&& in, Out&& out, Op op = Op::sum) {
  check(heddle_allreduce_on_stream(data_of(in), data_of(out), equal_length(in, out), dtype<Out>,
                                   static_cast<heddle_op>(op), comm.handle(), stream));
}
template <Buffer Data>
void allreduce_in_place_on_stream(const Comm& comm, Stream stream, Data&& data, Op op = Op::sum) {
  check(heddle_allreduce_on_stream(HEDDLE_IN_PLACE, data_of(data), std::ranges::size(data), dtype<Data>,
                                   static_cast<heddle_op>(op), comm.handle(), stream));
}
template <Buffer Data>
void bcast_on_stream(const Comm& comm, Stream stream, Data&& data, int root = 0) {
  check(heddle_bcast_on_stream(data_of(data), bytes_of(data), root, comm.handle(), stream));
}

}  // namespace heddle::api

#endif
