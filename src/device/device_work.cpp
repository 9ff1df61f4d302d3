#include "device/device_work.hpp"

#include <algorithm>
#include <vector>

#include "base/hash.hpp"
#include "base/round_up.hpp"

namespace heddle {

std::uint64_t asked(const DeviceSum& sum) {
  return mix64(mix64(sum.count) ^
               (static_cast<std::uint64_t>(sum.type) << 8 | static_cast<std::uint64_t>(sum.op)));
}

std::uint64_t asked(const DeviceBcast& bcast) {
  return mix64(~mix64(bcast.bytes) ^ static_cast<std::uint64_t>(bcast.root));
}

namespace {

// ---- Where the buffers lie

class DirectSum final : public AskedWork {
 public:
  DirectSum(const Worker& worker, const DeviceSum& sum)
      : AskedWork(asked(sum), 2 * static_cast<std::size_t>(worker.size)), worker_(worker), sum_(sum) {
    places()[2 * static_cast<std::size_t>(worker.rank)] = word(sum.in);
    places()[2 * static_cast<std::size_t>(worker.rank) + 1] = word(sum.out);
  }
  std::span<std::uint64_t> words() override { return all_words(); }
  std::size_t steps() const override { return 1; }
  int leader() const override { return 0; }
  // Of a blocking call: the default stream is one for all ranks, so this is after what any of them has given
  // it.
  Status step(std::size_t /*k*/) override {
    if (worker_.rank != leader()) return {};
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (std::size_t r = 0; r < places().size(); r += 2) {
      inputs.push_back(pointer(places()[r]));
      outputs.push_back(pointer(places()[r + 1]));
    }
    HEDDLE_TRY(worker_.link->after_earlier_work());
    return worker_.link->fold(sum_.type, sum_.op, inputs, outputs, sum_.count);
  }

 private:
  const Worker worker_;
  const DeviceSum sum_;
};

// As many words as a sum has, so that the two can meet and be told apart.
class DirectBcast final : public AskedWork {
 public:
  DirectBcast(const Worker& worker, const DeviceBcast& bcast)
      : AskedWork(asked(bcast), 2 * static_cast<std::size_t>(worker.size)), worker_(worker), bcast_(bcast) {
    places()[static_cast<std::size_t>(worker.rank)] = word(bcast.buffer);
  }
  std::span<std::uint64_t> words() override { return all_words(); }
  std::size_t steps() const override { return 1; }
  int leader() const override { return bcast_.root; }
  Status step(std::size_t /*k*/) override {
    if (worker_.rank != leader()) return {};
    HEDDLE_TRY(worker_.link->after_earlier_work());
    for (int r = 0; r < worker_.size; ++r) {
      if (r == worker_.rank) continue;
      HEDDLE_TRY(
          worker_.link->copy(pointer(places()[static_cast<std::size_t>(r)]), bcast_.buffer, bcast_.bytes));
    }
    return {};
  }

 private:
  const Worker worker_;
  const DeviceBcast bcast_;
};

// ---- Exchanged

class ExchangedSum final : public AskedWork {
 public:
  ExchangedSum(const Worker& worker, const DeviceSum& sum)
      : AskedWork(asked(sum)), worker_(worker), sum_(sum) {}
  std::size_t steps() const override { return 1; }
  bool meets_on_gpus() const override { return true; }
  Status step(std::size_t /*k*/) override {
    HEDDLE_TRY(worker_.link->after_earlier_work());
    HEDDLE_TRY(worker_.link->gather(sum_.in, sum_.count * dtype_size(sum_.type)));
    std::vector<const void*> inputs;
    for (int r = 0; r < worker_.size; ++r)
      inputs.push_back(r == worker_.rank ? sum_.in : worker_.link->gathered(r));
    void* const outputs[] = {sum_.out};
    return worker_.link->fold(sum_.type, sum_.op, inputs, outputs, sum_.count);
  }

 private:
  const Worker worker_;
  const DeviceSum sum_;
};

class ExchangedBcast final : public AskedWork {
 public:
  ExchangedBcast(const Worker& worker, const DeviceBcast& bcast)
      : AskedWork(asked(bcast)), worker_(worker), bcast_(bcast) {}
  std::size_t steps() const override { return 1; }
  bool meets_on_gpus() const override { return true; }
  Status step(std::size_t /*k*/) override {
    HEDDLE_TRY(worker_.link->after_earlier_work());
    return worker_.link->bcast(bcast_.buffer, bcast_.bytes, bcast_.root);
  }

 private:
  const Worker worker_;
  const DeviceBcast bcast_;
};

// ---- By way of the scratch

// After meeting k, in one stream: piece k is read, and piece k + 1 goes into the other half. What others read
// there, piece k - 1, they had read before that meeting.
class ByScratch : public AskedWork {
 public:
  ByScratch(const Worker& worker, std::size_t bytes, std::uint64_t number)
      : AskedWork(number),
        worker_(worker),
        bytes_(bytes),
        piece_(bytes <= worker.layout.whole ? worker.layout.whole : worker.layout.piece),
        pieces_(div_up(bytes, piece_)) {}
  std::size_t steps() const override { return pieces_; }

 protected:
  Extent piece(std::size_t k) const {
    const std::size_t begin = k * piece_;
    return {begin, std::min(piece_, bytes_ - begin)};
  }
  std::byte* given(int rank, std::size_t k) const {
    return worker_.link->scratch(rank) + k % 2 * worker_.layout.half;
  }
  std::byte* result(int rank, std::size_t k) const { return given(rank, k) + piece_; }

  const Worker worker_;
  const std::size_t bytes_;
  const std::size_t piece_;
  const std::size_t pieces_;
};

class ScratchSum final : public ByScratch {
 public:
  ScratchSum(const Worker& worker, const DeviceSum& sum)
      : ByScratch(worker, sum.count * dtype_size(sum.type), asked(sum)), sum_(sum) {}
  Status first() override {
    HEDDLE_TRY(worker_.link->after_earlier_work());
    return give(0);
  }
  Status step(std::size_t k) override {
    std::vector<const void*> inputs;
    for (int r = 0; r < worker_.size; ++r)
      inputs.push_back(given(r, k));
    const Extent e = piece(k);
    void* const outputs[] = {sum_.out + e.begin};
    HEDDLE_TRY(worker_.link->fold(sum_.type, sum_.op, inputs, outputs, e.bytes / dtype_size(sum_.type)));
    return k + 1 < pieces_ ? give(k + 1) : Status();
  }

 private:
  Status give(std::size_t k) {
    const Extent e = piece(k);
    return worker_.link->copy(given(worker_.rank, k), sum_.in + e.begin, e.bytes);
  }

  const DeviceSum sum_;
};

// The shares of a result lie in the halves as well, and are fetched a step later.
class SharedSum final : public ByScratch {
 public:
  SharedSum(const Worker& worker, const DeviceSum& sum)
      : ByScratch(worker, sum.count * dtype_size(sum.type), asked(sum)), sum_(sum) {}
  std::size_t steps() const override { return pieces_ + 1; }
  Status first() override {
    HEDDLE_TRY(worker_.link->after_earlier_work());
    return give(0);
  }
  Status step(std::size_t k) override {
    if (k > 0) HEDDLE_TRY(fetch(k - 1));
    if (k < pieces_) HEDDLE_TRY(fold(k));
    return k + 1 < pieces_ ? give(k + 1) : Status();
  }

 private:
  // All but this rank's own share, which nobody else reads.
  Status give(std::size_t k) {
    const Extent e = piece(k);
    const Extent own = share_of(e.bytes, worker_.rank, worker_.size);
    const std::size_t after = own.begin + own.bytes;
    std::byte* const to = given(worker_.rank, k);
    HEDDLE_TRY(worker_.link->copy(to, sum_.in + e.begin, own.begin));
    return worker_.link->copy(to + after, sum_.in + e.begin + after, e.bytes - after);
  }
  Status fold(std::size_t k) {
    const Extent e = piece(k);
    const Extent own = share_of(e.bytes, worker_.rank, worker_.size);
    if (own.bytes == 0) return {};
    std::vector<const void*> inputs;
    for (int r = 0; r < worker_.size; ++r)
      inputs.push_back((r == worker_.rank ? sum_.in + e.begin : given(r, k)) + own.begin);
    void* const outputs[] = {sum_.out + e.begin + own.begin, result(worker_.rank, k)};
    return worker_.link->fold(sum_.type, sum_.op, inputs, outputs, own.bytes / dtype_size(sum_.type));
  }
  Status fetch(std::size_t k) {
    const Extent e = piece(k);
    for (int r = 0; r < worker_.size; ++r) {
      const Extent theirs = share_of(e.bytes, r, worker_.size);
      if (r != worker_.rank)
        HEDDLE_TRY(worker_.link->copy(sum_.out + e.begin + theirs.begin, result(r, k), theirs.bytes));
    }
    return {};
  }

  const DeviceSum sum_;
};

class ScratchBcast final : public ByScratch {
 public:
  ScratchBcast(const Worker& worker, const DeviceBcast& bcast)
      : ByScratch(worker, bcast.bytes, asked(bcast)), bcast_(bcast) {}
  Status first() override {
    HEDDLE_TRY(worker_.link->after_earlier_work());
    return is_root() ? give(0) : Status();
  }
  Status step(std::size_t k) override {
    if (is_root()) return k + 1 < pieces_ ? give(k + 1) : Status();
    const Extent e = piece(k);
    return worker_.link->copy(bcast_.buffer + e.begin, given(bcast_.root, k), e.bytes);
  }

 private:
  bool is_root() const { return worker_.rank == bcast_.root; }
  Status give(std::size_t k) {
    const Extent e = piece(k);
    return worker_.link->copy(given(worker_.rank, k), bcast_.buffer + e.begin, e.bytes);
  }

  const DeviceBcast bcast_;
};

}  // namespace

Extent share_of(std::size_t bytes, int rank, int size) {
  const auto ranks = static_cast<std::size_t>(size);
  const std::size_t each = round_up(div_up(bytes, ranks), kShareGrain);
  const std::size_t begin = std::min(bytes, static_cast<std::size_t>(rank) * each);
  return {begin, std::min(bytes, begin + each) - begin};
}

ScratchLayout ScratchLayout::of(std::size_t bytes, int ranks) {
  // A piece and one share of it, which is rounded up to a grain.
  const auto piece_in = [n = static_cast<std::size_t>(ranks)](std::size_t room) {
    return n > 2 ? (room - kShareGrain) / (n + 1) * n / kShareGrain * kShareGrain : room;
  };
  const std::size_t half = bytes / 2 / kShareGrain * kShareGrain;
  return {half, piece_in(half), piece_in(2 * half)};
}

std::unique_ptr<DeviceWork> direct_sum(const Worker& worker, const DeviceSum& sum) {
  return std::make_unique<DirectSum>(worker, sum);
}

std::unique_ptr<DeviceWork> direct_bcast(const Worker& worker, const DeviceBcast& bcast) {
  return std::make_unique<DirectBcast>(worker, bcast);
}

std::unique_ptr<DeviceWork> scratch_sum(const Worker& worker, const DeviceSum& sum) {
  if (sum.count * dtype_size(sum.type) <= worker.ways.sums_exchanged)
    return std::make_unique<ExchangedSum>(worker, sum);
  if (worker.size > 2 && sum.count * dtype_size(sum.type) >= worker.ways.shared_from)
    return std::make_unique<SharedSum>(worker, sum);
  return std::make_unique<ScratchSum>(worker, sum);
}

std::unique_ptr<DeviceWork> scratch_bcast(const Worker& worker, const DeviceBcast& bcast) {
  if (bcast.bytes <= worker.ways.bcasts_exchanged) return std::make_unique<ExchangedBcast>(worker, bcast);
  return std::make_unique<ScratchBcast>(worker, bcast);
}

}  // namespace heddle
