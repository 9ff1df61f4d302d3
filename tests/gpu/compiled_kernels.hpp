// The double's kernels as nvcc compiled them, run by the machine in ptx/, in place of their host twins: where
// FAKE_CUDA_PTX names files of PTX.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "ptx/machine.hpp"
#include "ptx/program.hpp"

namespace heddle::test {

struct CompiledKernel {
  const ptx::Program* program = nullptr;
  const ptx::Kernel* kernel = nullptr;  // null: its twin is to run
};

// Dies, and says so, where a file cannot be read, or where there are files and none has a kernel of that
// name.
CompiledKernel find_compiled(std::string_view name);

// `memory` is what the kernel may use. Dies where it does what it may not, and says what. FAKE_CUDA_PTX_SEED
// is for another order of its threads.
void run_compiled(const CompiledKernel& compiled, std::span<const std::byte> arguments,
                  const std::vector<ptx::Range>& memory, unsigned blocks);

}  // namespace heddle::test
