// Compressed allreduces of vectors that lie anywhere, where each rank does its own part: of what lies on its
// GPU that takes the entries or the codes, and makes the result of those that come (local_gpu.hpp,
// local_codes.hpp). What lies elsewhere, or is more than it can do, is the host's, by images if need be.
#pragma once

#include <functional>

#include "base/status.hpp"
#include "comm/communicator.hpp"
#include "device/placed_residual.hpp"
#include "gpu/gpu.hpp"

namespace heddle {

// Entries that a GPU takes for a selection, for which the sampled one may take exactly the largest as well;
// 0: it does nothing of it.
std::size_t largest_wanted(const CompressedJob& job);

// Collective. `job.in` and `job.out` are the caller's, `job.residual` is not set, and `residual` may be null.
// `after` is called once all ranks have their result, or nothing of it has failed but on this rank: `on_gpu`:
// both vectors lie on a GPU.
Status compressed_allreduce_anywhere(gpu::Gpu& gpu, Communicator& communicator, const CompressedJob& job,
                                     PlacedResidual* residual,
                                     const std::function<Status(bool on_gpu)>& after);

}  // namespace heddle
