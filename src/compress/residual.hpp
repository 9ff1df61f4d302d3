// What compression has left out so far, added to the next gradient: error feedback (F. Seide, H. Fu, J.
// Droppo, G. Li, D. Yu, "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed
// Training of Speech DNNs", Interspeech 2014; S. Karimireddy, Q. Rebjock, S. Stich, M. Jaggi, "Error Feedback
// Fixes SignSGD and other Gradient Compression Schemes", ICML 2019).
//
// Every value stays finite: what is not is counted as sent, and leaves 0 behind. A NaN would otherwise come
// back for ever.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "compress/select.hpp"
#include "sparse/stream.hpp"

namespace heddle {

class Residual {
 public:
  explicit Residual(std::size_t n) : values_(n) {}

  std::size_t size() const { return values_.size(); }
  std::span<float> values() { return values_; }
  std::span<const float> values() const { return values_; }

  // out = gradient + residual, size() values each. `out` may be `gradient`.
  void compensate(const float* gradient, float* out) const;

  // After a step that sent, of what compensate() gave, the entries at `sent`: all others are kept.
  // `invalid_argument` where an index is not less than size() (nothing is changed).
  Status keep(const float* compensated, const Indices& sent);
  // The same where all values were sent through a codec: what it lost is kept.
  void keep(const float* compensated, const float* decoded);

  // Adds entries (of f32) that were counted as sent and then dropped on the way. `invalid_argument` where an
  // index is not less than size() (nothing is changed).
  Status put_back(const SparseView& entries);

  // The same of all values: size() of them. What would not be finite adds nothing.
  void add(std::span<const float> values);

  // As bytes, with a checksum (docs/compression.md), and back, with full validation.
  std::vector<std::byte> serialise() const;
  static Result<Residual> parse(std::span<const std::byte> bytes);

  // As a file, which is either the one from before or the new one, whenever the machine stops. load() refuses
  // one of another size than `expected_size`, where that is given.
  Status save(const std::string& path) const;
  static Result<Residual> load(const std::string& path);
  static Result<Residual> load(const std::string& path, std::size_t expected_size);

 private:
  Status has_no(std::uint64_t index) const;

  std::vector<float> values_;
};

}  // namespace heddle
