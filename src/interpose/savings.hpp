// What an unmodified program's allreduces can save on the way between nodes: sums of mostly zeros are exchanged as their entries, without
// loss; and, where HEDDLE_COMPRESS asks for it, sums of gradients are compressed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "comm/communicator.hpp"

namespace heddle {

// Of one communicator. All ranks make the same calls, and decide alike.
class Savings {
 public:
  // Null where there is nothing to save: all ranks on one node, or settings that say so. Borrows the communicator.
  static std::unique_ptr<Savings> make(const Config& config, Communicator& communicator);

  bool serves(DType type, Op op, std::size_t bytes) const {
    return op == Op::sum && bytes >= least_bytes_ && (looks(type, bytes) || compresses(type, bytes));
  }
  // Whether it is what HEDDLE_COMPRESS says that is served.
  bool loses(DType type, Op op, std::size_t bytes) const {
    return op == Op::sum && bytes >= least_bytes_ && compresses(type, bytes);
  }
  // What was lost of a vector is added to the next one of the same `key` and length: where the caller keeps it.
  Status allreduce(const void* in, void* out, std::size_t count, DType type, const void* key);

 private:
  // Of the sizes between two powers of two: after a vector that was not worth it so many calls go by without a look, and twice
  // as many each time.
  struct Backoff {
    std::uint32_t left = 0;
    std::uint32_t next = 1;
  };

  explicit Savings(const Config& config, Communicator& communicator)
      : config_(config), communicator_(communicator) {}

  bool looks(DType type, std::size_t bytes) const;
  bool compresses(DType type, std::size_t bytes) const;
  Status look(const void* in, void* out, std::size_t count, DType type);
  Status compress(const void* in, void* out, std::size_t count, DType type, const void* key);
  Residual* residual_of(const void* key, std::size_t count);

  Config config_;
  Communicator& communicator_;
  bool lossy_ = false;
  Compression compression_;
  std::size_t least_bytes_ = 0;
  std::array<Backoff, 65> backoff_;
  std::map<std::pair<const void*, std::size_t>, Residual> residuals_;
  std::vector<float> in_;  // of a float64 vector
  std::vector<float> out_;
};

}  // namespace heddle
