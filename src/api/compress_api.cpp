// Compressed allreduce: the C API.
#include <cstdint>
#include <limits>
#include <new>
#include <string>
#include <utility>

#include "api/arguments.hpp"
#include "api/device_buffers.hpp"
#include "api/error.hpp"
#include "api/handles.hpp"
#include "comm/communicator.hpp"
#include "device/device_path.hpp"
#include "heddle/heddle_compress.h"

namespace heddle::edge {
namespace {

Result<Compression> method_in(const char* method) {
  HEDDLE_TRY(check_not_null(method, "method"));
  return parse_compression(method);
}

// Contributions and the sum are coded once each, between nodes twice: from the members of a node to their
// leader as well. From 33 ranks on split_allgather is rabenseifner, which codes partial sums in each of its
// rounds.
double bound_of(const Compression& how, int ranks, double largest) {
  if (how.method != Compression::Method::codec) return std::numeric_limits<double>::infinity();
  if (ranks == 1) return 0;
  const double each = error_bound(how.codec, largest);
  const double node_sums = error_bound(how.codec, ranks * (largest + each));
  double off = ranks * each + node_sums;
  if (ranks > 32) {
    double sum = largest;
    double in_rounds = 0;
    for (std::int64_t met = 1; met < ranks; met *= 2, sum *= 2)
      in_rounds = 2 * (in_rounds + error_bound(how.codec, sum + in_rounds));
    off += in_rounds;
  }
  return off + error_bound(how.codec, ranks * largest + off);
}

// Both bounds; `of`: what bounds a sum.
template <typename Of>
Status set_bound(const char* method, int ranks, double largest, double* bound, Of of) {
  HEDDLE_TRY(check_not_null(bound, "bound"));
  const Result<Compression> how = method_in(method);
  if (!how.ok()) return how.status();
  if (ranks < 1)
    return Status(Code::invalid_argument, "ranks is " + std::to_string(ranks) + ", and must be 1 at least");
  if (!(largest >= 0))
    return Status(Code::invalid_argument,
                  "largest is " + std::to_string(largest) + ", and must be a magnitude: 0 or more");
  return of(how.value(), bound);
}

Status check_path(const char* path) {
  HEDDLE_TRY(check_not_null(path, "path"));
  return *path != 0 ? Status() : Status(Code::invalid_argument, "path is empty");
}

// Where it is one, which may be null. What the call leaves in it would be what the sum is.
Status check_residual(heddle_residual_t residual, const Compression& how, const void* result,
                      std::size_t bytes, const char* what) {
  if (residual == nullptr) return {};
  HEDDLE_TRY(check(residual));
  if (!settles_with_residual(how))
    return Status(
        Code::invalid_argument,
        compression_name(how) +
            " loses as much as the largest value, so that a residual would grow without bound, and the "
            "sums with it: pass none, or take qsgd:4, qsgd:8 or onebit");
  if (!residual->residual.overlaps(result, bytes)) return {};
  return Status(Code::invalid_argument,
                std::string(what) + " overlaps the values of the residual; give it memory of its own");
}

Status check_compressed(const void* sendbuf, float* recvbuf, std::size_t count, const char* method,
                        std::uint64_t seed, heddle_residual_t residual, CompressedJob* job) {
  const heddle_dtype type = HEDDLE_FLOAT32;
  const heddle_op sum = HEDDLE_SUM;
  Reduction r;
  HEDDLE_TRY(check_reduction(sendbuf, recvbuf, count, type, sum, &r));
  const Result<Compression> how = method_in(method);
  if (!how.ok()) return how.status();
  HEDDLE_TRY(check_residual(residual, how.value(), recvbuf, count * sizeof(float), "recvbuf"));
  if (residual != nullptr && residual->residual.size() != count)
    return Status(Code::invalid_argument, "the residual has " + std::to_string(residual->residual.size()) +
                                              " values and count is " + std::to_string(count));
  job->in = static_cast<const float*>(r.in);
  job->out = static_cast<float*>(r.out);
  job->count = count;
  job->how = how.value();
  job->how.codec.seed = seed;
  return {};
}

// Of a rank that has passed what no call takes: it meets the others all the same, so that they hear of it
// instead of waiting.
Status tell_all_of_compressed(heddle_comm& comm, Status trouble) {
  DevicePath* const path = comm.communicator->device_path();
  DeviceTraffic none;
  if (path != nullptr && !path->largest_sum({nullptr, nullptr, 0, 0, nullptr}, 0, &none).ok()) {
    comm.communicator->note_compressed();  // as on the ranks that this failed with
    return trouble;
  }
  CompressedJob job;
  job.trouble = std::move(trouble);
  return comm.communicator->compressed_allreduce(job);
}

// But for what the residual has, which may lie on a GPU.
Status check_coded(const heddle_sparse* in, const float* dense, const char* method, std::uint64_t seed,
                   heddle_residual_t residual, CodedSparseJob* job) {
  HEDDLE_TRY(check_vector(in, "in", &job->in));
  HEDDLE_TRY(check_dense(dense, sizeof(float), job->in));
  const Result<Compression> how = method_in(method);
  if (!how.ok()) return how.status();
  HEDDLE_TRY(check_residual(residual, how.value(), dense, job->in.dimension * sizeof(float), "dense"));
  job->how = how.value();
  job->how.codec.seed = seed;
  return {};
}

Status sum_coded(CodedSparseJob job, float* dense, heddle_comm& comm) {
  SparseImages images;
  bool met = false;
  Status done = images.load(comm, &job.in);
  if (done.ok()) {
    done = with_image(comm, dense, job.in.dimension * sizeof(float), Access::write, [&](void* out) {
      met = true;
      job.out = static_cast<float*>(out);
      return comm.communicator->coded_sparse_allreduce(job);
    });
  }
  if (met) return done;
  // The host cannot see the arrays: the others hear of it instead of waiting.
  job.trouble = std::move(done);
  return comm.communicator->coded_sparse_allreduce(job);
}

}  // namespace
}  // namespace heddle::edge

using heddle::Code;
using heddle::CollectiveCall;
using heddle::Status;
namespace edge = heddle::edge;

heddle_status heddle_residual_create(size_t count, heddle_residual_t* residual) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check_not_null(residual, "residual"));
    *residual = nullptr;
    if (count > static_cast<std::size_t>(PTRDIFF_MAX) / sizeof(float))
      return Status(Code::invalid_argument,
                    "a residual of " + std::to_string(count) + " values is more than memory can hold");
    try {
      *residual = new heddle_residual(heddle::Residual(count));
    } catch (const std::bad_alloc&) {
      return Status(Code::out_of_memory, "no memory for a residual of " + std::to_string(count) +
                                             " values, " + std::to_string(count * sizeof(float)) + " bytes");
    }
    return {};
  });
}

heddle_status heddle_residual_destroy(heddle_residual_t residual) {
  if (residual == nullptr) return HEDDLE_OK;
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(residual));
    delete residual;
    return {};
  });
}

heddle_status heddle_residual_save(heddle_residual_t residual, const char* path) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(residual));
    HEDDLE_TRY(edge::check_path(path));
    const heddle::Result<heddle::Residual*> values = residual->residual.on_host();
    return values.ok() ? values.value()->save(path) : values.status();
  });
}

heddle_status heddle_residual_load(const char* path, size_t count, heddle_residual_t* residual) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check_not_null(residual, "residual"));
    *residual = nullptr;
    HEDDLE_TRY(edge::check_path(path));
    heddle::Result<heddle::Residual> loaded = heddle::Residual::load(path, count);
    if (!loaded.ok()) return loaded.status();
    *residual = new heddle_residual(std::move(loaded).value());
    return {};
  });
}

heddle_status heddle_residual_values(heddle_residual_t residual, float** values, size_t* count) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(residual));
    HEDDLE_TRY(edge::check_not_null(values, "values"));
    HEDDLE_TRY(edge::check_not_null(count, "count"));
    const heddle::Result<heddle::Residual*> shown = residual->residual.show();
    if (!shown.ok()) return shown.status();
    *values = shown.value()->values().data();
    *count = residual->residual.size();
    return {};
  });
}

heddle_status heddle_compressed_allreduce(const void* sendbuf, float* recvbuf, size_t count,
                                          const char* method, uint64_t seed, heddle_residual_t residual,
                                          heddle_comm_t comm) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(comm));
    const edge::OneCall call(*comm);
    return edge::in_steps(*comm, [&]() -> Status {
      HEDDLE_TRY(edge::agree(call, CollectiveCall::Kind::compressed_allreduce));
      heddle::CompressedJob job;
      Status checked = edge::check_compressed(sendbuf, recvbuf, count, method, seed, residual, &job);
      if (!checked.ok()) return edge::tell_all_of_compressed(*comm, std::move(checked));
      return edge::compressed_anywhere(*comm, job, residual != nullptr ? &residual->residual : nullptr);
    });
  });
}

heddle_status heddle_compression_error_bound(const char* method, int ranks, double largest, double* bound) {
  return edge::guarded([&]() -> Status {
    return edge::set_bound(method, ranks, largest, bound, [&](const heddle::Compression& how, double* to) {
      *to = edge::bound_of(how, ranks, largest);
      return Status();
    });
  });
}

heddle_status heddle_sparse_allreduce_coded(const heddle_sparse* in, float* dense, const char* method,
                                            uint64_t seed, heddle_residual_t residual, heddle_comm_t comm) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(comm));
    const edge::OneCall call(*comm);
    return edge::in_steps(*comm, [&]() -> Status {
      HEDDLE_TRY(edge::agree(call, CollectiveCall::Kind::sparse_allreduce_coded));
      heddle::CodedSparseJob job;
      job.trouble = edge::check_coded(in, dense, method, seed, residual, &job);
      if (job.trouble.ok() && residual != nullptr) {
        const heddle::Result<heddle::Residual*> values = residual->residual.on_host();
        job.trouble = values.status();
        if (values.ok()) job.residual = values.value();
      }
      if (!job.trouble.ok()) return comm->communicator->coded_sparse_allreduce(job);
      return edge::sum_coded(std::move(job), dense, *comm);
    });
  });
}

heddle_status heddle_sparse_coded_error_bound(const char* method, int ranks, double largest, double* bound) {
  return edge::guarded([&]() -> Status {
    return edge::set_bound(method, ranks, largest, bound, [&](const heddle::Compression& how, double* to) {
      if (how.method != heddle::Compression::Method::codec)
        return Status(Code::invalid_argument,
                      heddle::compression_name(how) +
                          " is no codec, as are fp16, bf16, qsgd:8, qsgd:4, qsgd:2, terngrad and onebit: "
                          "the entries are selected already");
      *to = ranks == 1 ? 0 : heddle::error_bound(how.codec, ranks * largest);
      return Status();
    });
  });
}
