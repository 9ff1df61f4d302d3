#include "gpu/kernels/layout.hpp"

#include <algorithm>

#include "gpu/address.hpp"

namespace heddle::gpu::kernels {
namespace {

constexpr std::uint64_t kVectorBytes = sizeof(Vector);
// More than run at once, so that a multiprocessor which is done early gets another. The rest goes by strides.
constexpr std::uint64_t kBlocksOfMultiprocessor = 16;

// What all addresses have in common, as the bits in which none differs from the first.
class Alignment {
 public:
  explicit Alignment(const void* first) : first_(number(first)) {}
  void add(const void* address) {
    different_ |= number(address) ^ first_;
    any_ |= number(address);
  }
  bool congruent(std::uintptr_t modulus) const { return different_ % modulus == 0; }
  bool aligned(std::uintptr_t modulus) const { return (any_ | first_) % modulus == 0; }
  std::uintptr_t first() const { return first_; }

 private:
  std::uintptr_t first_;
  std::uintptr_t different_ = 0;
  std::uintptr_t any_ = 0;
};

}  // namespace

Launch lay_out(std::span<const void* const> inputs, std::span<void* const> outputs, std::uint64_t count,
               std::size_t bytes, std::size_t alignment, unsigned multiprocessors) {
  Launch launch{};
  FoldArguments& arguments = launch.arguments;
  arguments.n_inputs = static_cast<std::uint32_t>(inputs.size());
  arguments.n_outputs = static_cast<std::uint32_t>(outputs.size());
  Alignment addresses(inputs.front());
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    arguments.inputs[k] = static_cast<const unsigned char*>(inputs[k]);
    addresses.add(inputs[k]);
  }
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    arguments.outputs[k] = static_cast<unsigned char*>(outputs[k]);
    addresses.add(outputs[k]);
  }
  arguments.count = count;
  arguments.by_element = addresses.aligned(alignment) ? 1 : 0;
  arguments.head = count;
  const std::uint64_t to_boundary = (0 - addresses.first()) % kVectorBytes;
  if (addresses.congruent(kVectorBytes) && to_boundary % bytes == 0) {
    arguments.head = std::min(count, to_boundary / bytes);
    arguments.vectors = (count - arguments.head) / (kVectorBytes / bytes);
  }
  // Few vectors are spread over all multiprocessors instead.
  arguments.tiles = arguments.vectors / kTileVectors;
  if (arguments.tiles < multiprocessors) arguments.tiles = 0;

  const std::uint64_t others = arguments.vectors - arguments.tiles * kTileVectors;
  const std::uint64_t singles = count - arguments.vectors * (kVectorBytes / bytes);
  const std::uint64_t most =
      std::max({arguments.tiles, (others + kThreads - 1) / kThreads, (singles + kThreads - 1) / kThreads});
  launch.blocks = static_cast<unsigned>(
      std::min(most, kBlocksOfMultiprocessor * std::max<std::uint64_t>(multiprocessors, 1)));
  return launch;
}

}  // namespace heddle::gpu::kernels
