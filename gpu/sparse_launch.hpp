// What the sources of SparseKernels have in common. For these alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "gpu/sparse_kernels.hpp"

namespace heddle::gpu {

inline const char* index_name(bool wide) {
  return wide ? "_i64" : "_i32";
}

struct Aligned {
  const char* name;
  const void* address;
  std::size_t to;
};
// `unsupported`, with what is not.
Status check_alignment(std::initializer_list<Aligned> all);

// One for each thread's first element.
inline std::uint64_t blocks_for(std::uint64_t elements) {
  return (elements + kernels::kThreads - 1) / kernels::kThreads;
}

// In launches of so many tiles that their counts fit into words.
template <class Arguments>
Status SparseKernels::launch_tiles(CUstream stream, const std::string& name, Arguments arguments,
                                   std::uint64_t all, unsigned of_each, std::uint64_t most) {
  arguments.most_tiles = std::min(tiles_, most);
  arguments.is_first = 1;
  do {
    const std::uint64_t here = std::min(all - arguments.first_tile, arguments.most_tiles);
    HEDDLE_TRY(launch(stream, name, here, of_each, &arguments));
    arguments.first_tile += here;
    arguments.is_first = 0;
  } while (arguments.first_tile < all);
  return {};
}

}  // namespace heddle::gpu
