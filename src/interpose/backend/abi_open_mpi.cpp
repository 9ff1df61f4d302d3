#include "interpose/backend/abi.hpp"
#include "interpose/backend/predefined.hpp"

#include <array>
#include <atomic>
#include <bitset>
#include <iterator>
#include <set>
#include <vector>

namespace heddle::backend::abi {
namespace {

class PredefinedSizes {
 public:
  explicit PredefinedSizes(const std::vector<SizedType>& others) {
    std::vector<SizedType> all(std::begin(kTypesOfC), std::end(kTypesOfC));
    all.insert(all.end(), others.begin(), others.end());
    std::vector<MPI_Datatype> types;
    for (const SizedType& one : all)
      types.push_back(one.type);
    slots_.fit(types);
    for (const SizedType& one : all)
      sizes_[slots_.of(one.type)] = one;
  }
  std::size_t of(MPI_Datatype type) const {
    const SizedType& size = sizes_[slots_.of(type)];
    return size.type == type ? size.bytes : 0;
  }

 private:
  DatatypeSlots slots_;
  std::array<SizedType, DatatypeSlots::kSlots> sizes_;
};

std::atomic<const PredefinedSizes*> learned{nullptr};

}  // namespace

// Where two meet another factor is tried: one in some ten is good, since they are few beside the slots.
void DatatypeSlots::fit(std::span<const MPI_Datatype> types) {
  // Two names may stand for one object, in another version of the library.
  const std::size_t different = std::set<MPI_Datatype>(types.begin(), types.end()).size();
  for (factor_ = 0x9E3779B1u;; factor_ += 2) {
    std::bitset<kSlots> taken;
    for (const MPI_Datatype type : types)
      taken.set(of(type));
    if (taken.count() == different) return;
  }
}

std::size_t predefined_size(MPI_Datatype type) {
  const PredefinedSizes* sizes = learned.load(std::memory_order_acquire);
  if (sizes == nullptr) {
    static const PredefinedSizes of_c({});
    sizes = &of_c;
  }
  return sizes->of(type);
}

void learn_types(const HostMpi& mpi) {
  static const PredefinedSizes sizes(sizes_of_others(mpi));
  learned.store(&sizes, std::memory_order_release);
}

std::size_t size_of(const HostMpi& mpi, MPI_Datatype type) {
  MPI_Count bytes = 0;
  if (!is_datatype(type) || mpi.Type_size_x(type, &bytes) != MPI_SUCCESS || bytes < 0) return 0;
  return static_cast<std::size_t>(bytes);
}

bool find_op(MPI_Op op, Op* out) {
  for (const MappedOp& one : kMappedOps) {
    if (one.op != op) continue;
    *out = one.mapped;
    return true;
  }
  return false;
}

}  // namespace heddle::backend::abi
