// The double's kernels (fake_cuda.h): each runs as its host twin, or as nvcc compiled it, when the stream is
// waited for. The binaries are heddle's own, of which only the first word is looked at.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "compiled_kernels.hpp"
#include "exchange_twin.hpp"
#include "fake_world.hpp"
#include "kernel_twins.hpp"
#include "sparse_twins.hpp"

using namespace fake;
using heddle::gpu::kernels::ExchangeArguments;
using heddle::gpu::kernels::FoldArguments;
using heddle::gpu::kernels::kThreads;
using heddle::gpu::kernels::others_may_come;
using heddle::test::CompiledKernel;
using heddle::test::KernelTwin;
using heddle::test::SparseTwin;

struct CUlib_st {
  std::vector<std::unique_ptr<CUkern_st>> kernels;
};
struct CUkern_st {
  const char* name;
  const KernelTwin* fold;  // one of the two, or neither: the exchange
  const SparseTwin* sparse;
  CompiledKernel compiled;
  std::set<unsigned long long> loaded;  // into contexts of these numbers
};

namespace {

fake_cuda_launch last_launch;

// What the kernel that is launched now uses.
std::vector<std::weak_ptr<Pages>> used;

// Of one launch, until that is done, or is not to be done any more.
class InUse {
 public:
  explicit InUse(const std::vector<std::weak_ptr<Pages>>& all) : all_(all) { add(1); }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;
  ~InUse() { add(-1); }

 private:
  void add(int more) const {
    for (const auto& one : all_) {
      if (const std::shared_ptr<Pages> pages = one.lock()) pages->kernels += more;
    }
  }
  const std::vector<std::weak_ptr<Pages>> all_;
};

// A kernel may use what the current context's device can reach; where the double has it. What that is, is
// added to `memory`.
CUresult reach(const void* address, std::size_t bytes, unsigned char** inside,
               std::vector<heddle::test::ptx::Range>& memory) {
  const auto at = reinterpret_cast<Address>(address);
  const Memory* const found = world().find(at);
  if (found == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  used.push_back(found->pages);
  CUresult error = CUDA_SUCCESS;
  *inside = reinterpret_cast<unsigned char*>(world().inside(at, bytes, current(), &error));
  memory.push_back({reinterpret_cast<std::uintptr_t>(*inside), bytes});
  return error == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_ILLEGAL_ADDRESS : error;
}

// The arguments are copied now, and used later, as by the driver.
CUresult prepare_fold(const CUkern_st& kernel, const void* given, unsigned blocks, Work* run) {
  const KernelTwin& twin = *kernel.fold;
  FoldArguments arguments = *static_cast<const FoldArguments*>(given);
  std::vector<heddle::test::ptx::Range> memory;
  const std::size_t bytes = arguments.count * twin.bytes;
  for (unsigned k = 0; k < arguments.n_inputs; ++k) {
    unsigned char* inside = nullptr;
    if (const CUresult error = reach(arguments.inputs[k], bytes, &inside, memory); error != CUDA_SUCCESS)
      return error;
    arguments.inputs[k] = inside;
  }
  for (unsigned k = 0; k < arguments.n_outputs; ++k) {
    if (const CUresult error = reach(arguments.outputs[k], bytes, &arguments.outputs[k], memory);
        error != CUDA_SUCCESS)
      return error;
  }
  *run = [&twin, compiled = kernel.compiled, arguments, memory, blocks] {
    if (compiled.kernel != nullptr)
      run_compiled(compiled, std::as_bytes(std::span(&arguments, 1)), memory, blocks);
    else
      twin.run(arguments, blocks);
    return true;
  };
  return CUDA_SUCCESS;
}

CUresult prepare_sparse(const CUkern_st& kernel, const void* given, unsigned blocks, Work* run) {
  const SparseTwin& twin = *kernel.sparse;
  // Words, which are aligned as arguments are.
  std::vector<std::uint64_t> arguments((twin.argument_bytes + 7) / 8);
  std::memcpy(arguments.data(), given, twin.argument_bytes);
  std::vector<heddle::test::ptx::Range> memory;
  CUresult error = CUDA_SUCCESS;
  const bool is_there =
      twin.translate(arguments.data(), [&](const void* address, std::size_t bytes) -> unsigned char* {
        unsigned char* inside = nullptr;
        error = reach(address, bytes, &inside, memory);
        return error == CUDA_SUCCESS ? inside : nullptr;
      });
  if (!is_there) return error;
  *run = [&twin, compiled = kernel.compiled, arguments, memory, blocks] {
    if (compiled.kernel != nullptr)
      run_compiled(compiled, std::as_bytes(std::span(arguments)).first(twin.argument_bytes), memory, blocks);
    else
      twin.run(arguments.data(), blocks);
    return true;
  };
  return CUDA_SUCCESS;
}

// What it would wait for in vain it finds out when that time is over, and not at once. Who has what it waited
// for may be gone by the time that the kernel runs as a whole: then it sends to nobody.
CUresult prepare_exchange(const CUkern_st& kernel, const void* given, unsigned blocks, Work* run) {
  ExchangeArguments arguments = *static_cast<const ExchangeArguments*>(given);
  std::vector<heddle::test::ptx::Range> memory;
  CUresult error = CUDA_SUCCESS;
  const auto is_there = heddle::test::translate(
      arguments, blocks, [&](const void* address, std::size_t bytes) -> unsigned char* {
        unsigned char* inside = nullptr;
        error = reach(address, bytes, &inside, memory);
        return error == CUDA_SUCCESS ? inside : nullptr;
      });
  if (!is_there) return error;
  using Clock = std::chrono::steady_clock;
  *run = [compiled = kernel.compiled, arguments, memory, blocks, begin = Clock::time_point()]() mutable {
    if (begin == Clock::time_point()) {
      begin = Clock::now();
      if (!world().drops_exchanges) heddle::test::send_all(arguments, blocks);
    }
    const bool is_late =
        arguments.patience != 0 && Clock::now() - begin > std::chrono::nanoseconds(arguments.patience);
    if (!heddle::test::have_come(arguments, blocks)) {
      if (!is_late) return false;
      arguments.patience = 1;
    }
    const std::size_t words = std::size_t{2} * arguments.ranks * arguments.room;
    std::vector<std::uint64_t> nobody(words);
    memory.push_back({reinterpret_cast<std::uintptr_t>(nobody.data()), words * sizeof nobody[0]});
    for (std::uint32_t r = 0; r < arguments.ranks; ++r) {
      if (r != arguments.rank) arguments.slots[r] = nobody.data();
    }
    others_may_come = false;
    if (compiled.kernel != nullptr)
      run_compiled(compiled, std::as_bytes(std::span(&arguments, 1)), memory, blocks);
    else
      heddle::test::run_exchange(arguments, blocks);
    others_may_come = true;
    return true;
  };
  return CUDA_SUCCESS;
}

CUresult prepare(const CUkern_st& kernel, const void* given, unsigned blocks, Work* run) {
  if (kernel.fold != nullptr) return prepare_fold(kernel, given, blocks, run);
  if (kernel.sparse != nullptr) return prepare_sparse(kernel, given, blocks, run);
  return prepare_exchange(kernel, given, blocks, run);
}

}  // namespace

FAKE void fake_cuda_last_launch(fake_cuda_launch* launch) {
  const std::lock_guard lock(world().mutex);
  *launch = last_launch;
}

FAKE CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned,
                                CUlibraryOption*, void**, unsigned) {
  ENTER_UNSAFE("cuLibraryLoadData")
  constexpr std::uint32_t kFatBinary = 0xBA55ED50U;
  std::uint32_t magic = 0;
  std::memcpy(&magic, code, sizeof magic);
  if (magic != kFatBinary) return CUDA_ERROR_INVALID_IMAGE;
  *library = new CUlib_st;
  return CUDA_SUCCESS;
}
FAKE CUresult cuLibraryUnload(CUlibrary library) {
  ENTER_UNSAFE("cuLibraryUnload")
  delete library;
  return CUDA_SUCCESS;
}
FAKE CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  ENTER("cuLibraryGetKernel")
  CUkern_st found = {
      "heddle_exchange", heddle::test::find_twin(name), heddle::test::find_sparse_twin(name), {}, {}};
  if (found.fold != nullptr) found.name = found.fold->name;
  if (found.sparse != nullptr) found.name = found.sparse->name;
  if (name != std::string(found.name)) return CUDA_ERROR_NOT_FOUND;
  found.compiled = heddle::test::find_compiled(name);
  library->kernels.push_back(std::make_unique<CUkern_st>(found));
  *kernel = library->kernels.back().get();
  return CUDA_SUCCESS;
}
// A kernel is loaded into a context when it is asked for there, or launched: then the driver may wait for all
// that the context has been given.
FAKE CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  ENTER_UNSAFE("cuKernelGetFunction")
  if (!alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
  kernel->loaded.insert(current()->id);
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}
FAKE CUresult cuFuncLoad(CUfunction function) {
  ENTER_UNSAFE("cuFuncLoad")
  return reinterpret_cast<CUkernel>(function)->loaded.contains(current()->id) ? CUDA_SUCCESS
                                                                              : CUDA_ERROR_INVALID_HANDLE;
}
FAKE CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned block_x,
                             unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,
                             void** parameters, void** extra) {
  come_to_room(stream);
  ENTER("cuLaunchKernel")
  if (!alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
  const bool as_agreed = x > 0 && y == 1 && z == 1 && block_x == kThreads && block_y == 1 && block_z == 1 &&
                         shared_bytes == 0 && extra == nullptr;
  if (!as_agreed) return CUDA_ERROR_INVALID_VALUE;
  CUkern_st& kernel = *reinterpret_cast<CUkernel>(function);
  if (kernel.loaded.insert(current()->id).second) ++world().calls["a load at a launch"];
  last_launch = {kernel.name, x, block_x, stream};
  ++world().calls[kernel.name];
  Work run;
  used.clear();
  const CUresult error = prepare(kernel, parameters[0], x, &run);
  if (error != CUDA_SUCCESS) return error;
  // A rank that has what the others send is not written to any more, while their kernels may still wait for
  // each other.
  if (kernel.fold == nullptr && kernel.sparse == nullptr) used.clear();
  return submit(stream, Node([run, all = used](const std::shared_ptr<Queue>& queue) {
                  give(*queue, [run, in_use = std::make_shared<InUse>(all)] { return run(); });
                }));
}
