// Kernels' host twins with blocks that run at once, as threads: what they tell each other is looked at then.
#pragma once

#include <thread>
#include <vector>

#include "gpu/kernels/block.hpp"

namespace heddle::test {

template <class Kernel>
void run_at_once(unsigned blocks, const Kernel& kernel) {
  std::vector<std::thread> threads;
  threads.reserve(blocks);
  for (unsigned block = 0; block < blocks; ++block)
    threads.emplace_back([&kernel, block, blocks] { kernel(gpu::kernels::Block{block, blocks}); });
  for (std::thread& thread : threads)
    thread.join();
}

}  // namespace heddle::test
