// What collectives on streams refuse, and how they say so; and calls that differ.
#pragma once

#include <string>

#include "base/status.hpp"
#include "gpu/gpu.hpp"
#include "gpu/link.hpp"

namespace heddle {

// `unsupported`: why, and the way out.
Status refuse_stream(const std::string& why);
// Another rank's reason.
Status refused_elsewhere(int rank);
// Where some ranks capture a call into a CUDA graph and others do not. `captured`: this one does.
Status refuse_mixed(bool captured);
// Where the ranks' calls have not one length, type, operation or root.
Status refuse_different();
// Of a buffer of another context.
Status refuse_place(const void* buffer);
// Of two ranks that share a context, whose streams would wait for words in memory: on a GPU they have waited
// for each other for ever (docs/gpu.md, "What goes wrong").
std::string why_not_threads(int rank, int other);
// Before the first call: the place of a buffer that a communicator can be set up for.
Status find_for_stream(gpu::Gpu& gpu, gpu::Stream stream, const void* buffer, gpu::Place* found);

}  // namespace heddle
