#include "sparse/bitmap_exchange.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <string>

#include "base/round_up.hpp"
#include "engine/fold_table.hpp"
#include "engine/kernels/kernels.hpp"

namespace heddle {
namespace {

// Of a block: whole words of any width.
constexpr std::size_t kLeastBlock = kWordIndices * sizeof(std::uint64_t);

}  // namespace

BitmapExchange::BitmapExchange(NodeMemory& memory, int rank, int ranks)
    : memory_(memory),
      rank_(static_cast<std::size_t>(rank)),
      ranks_(static_cast<std::size_t>(ranks)),
      block_bytes_(std::max(kLeastBlock, kRoundBytes / ranks_ / kLeastBlock * kLeastBlock)),
      window_(&memory),
      bitmap_(&memory),
      windows_(ranks_),
      bitmaps_(ranks_) {}

// ---- Setting up

bool BitmapExchange::mark(const SparseView& input) {
  marked_ = false;
  const std::size_t bytes = bitmap_words(input.dimension) * sizeof(std::uint64_t);
  // By powers of two, since the others keep what they have mapped.
  if (!bitmap_.grow(std::bit_ceil(std::max<std::size_t>(bytes, 4096)))) return check_sparse(input).ok();
  marked_ = mark_entries(input, reinterpret_cast<std::uint64_t*>(bitmap_.data()));
  return marked_;
}

BitmapExchange::Shown BitmapExchange::show() {
  Shown shown{};
  if (!marked_) return shown;
  if (window_.size() == 0) {
    if (!window_.grow(window_bytes())) return shown;
    new (window_.data()) Progress;
  }
  const bool placed = memory_.place_of(window_.data(), window_.size(), &shown.window) &&
                      memory_.place_of(bitmap_.data(), bitmap_.size(), &shown.bitmap);
  shown.is_there = placed ? 1 : 0;
  return shown;
}

void BitmapExchange::set_geometry(const SparseView& like) {
  width_ = dtype_size(like.value_type);
  index_bytes_ = index_size(like.index_type);
  kernels_ = bitmap_kernels(like.value_type, like.index_type);
  fold_ = fold_kernel(like.value_type, Op::sum);
  block_words_ = block_bytes_ / (kWordIndices * width_);
  words_ = bitmap_words(like.dimension);
  const std::uint64_t round_words = block_words_ * ranks_;
  rounds_ = div_up(words_, round_words);
  tiles_.resize((ranks_ + 1) * kPiece * kWordIndices * width_);
  stage_.resize(kStage * kWordIndices * index_bytes_ + kPackSlack);
  from_.resize(ranks_);
  inputs_.resize(ranks_);
}

Status BitmapExchange::open(const SparseView& input, std::span<const Shown> all) {
  input_ = input;
  set_geometry(input);
  for (std::size_t r = 0; r < ranks_; ++r) {
    const bool own = r == rank_;
    windows_[r] = own ? window_.data() : memory_.at(static_cast<int>(r), all[r].window);
    const std::byte* bitmap = own ? bitmap_.data() : memory_.at(static_cast<int>(r), all[r].bitmap);
    if (windows_[r] == nullptr || bitmap == nullptr)
      return Status(Code::system, "memory of rank " + std::to_string(r) + " cannot be mapped");
    bitmaps_[r] = reinterpret_cast<const std::uint64_t*>(bitmap);
  }
  union_.assign(bitmaps_[0], bitmaps_[0] + words_);
  for (std::size_t r = 1; r < ranks_; ++r) {
    const std::uint64_t* other = bitmaps_[r];
    for (std::uint64_t w = 0; w < words_; ++w)
      union_[w] |= other[w];
  }
  count_ = count_bits(union_.data(), words_);
  return {};
}

void BitmapExchange::start(void* indices, void* values) {
  indices_ = static_cast<std::byte*>(indices);
  values_ = static_cast<std::byte*>(values);
  streamed_ = count_ * (width_ + index_bytes_) >= kStreamedResultBytes;
  gave_ = folded_ = took_ = 0;
  given_entries_ = taken_entries_ = taken_indices_ = 0;
}

// ---- Where things are

// The words of a block; those of the last round may be fewer, or none.
std::span<const std::uint64_t> BitmapExchange::words_of(const std::uint64_t* bitmap,
                                                        std::uint64_t block) const {
  const std::uint64_t first = std::min(words_, block * block_words_);
  return {bitmap + first, std::min<std::uint64_t>(block_words_, words_ - first)};
}

std::size_t BitmapExchange::given_at(std::uint64_t round, std::size_t owner) const {
  const std::size_t slot = (before_ + round) % kSlots;
  return sizeof(Progress) + (slot * ranks_ + owner) * block_bytes_;
}

std::size_t BitmapExchange::sums_at(std::uint64_t round) const {
  const std::size_t slot = (before_ + round) % kSlots;
  return sizeof(Progress) + kSlots * ranks_ * block_bytes_ + slot * (block_bytes_ + kPackSlack);
}

std::size_t BitmapExchange::window_bytes() const {
  return sizeof(Progress) + kSlots * (ranks_ * block_bytes_ + block_bytes_ + kPackSlack);
}

// ---- Rounds

int BitmapExchange::behind(Count count, std::uint64_t rounds) const {
  for (std::size_t r = 0; r < ranks_; ++r) {
    const auto& progress = *reinterpret_cast<const Progress*>(windows_[r]);
    if ((progress.*count).load(std::memory_order_acquire) < before_ + rounds) return static_cast<int>(r);
  }
  return -1;
}

// Slots are used again when nobody reads them any more.
int BitmapExchange::keeps_from_giving() const {
  return gave_ < kSlots ? -1 : behind(&Progress::folded, gave_ - kSlots + 1);
}
int BitmapExchange::keeps_from_folding() const {
  const int reader = folded_ < kSlots ? -1 : behind(&Progress::took, folded_ - kSlots + 1);
  return reader >= 0 ? reader : behind(&Progress::gave, folded_ + 1);
}
int BitmapExchange::keeps_from_taking() const {
  return behind(&Progress::folded, took_ + 1);
}

Status BitmapExchange::poll(bool* done) {
  for (bool moved = true; moved;) {
    moved = false;
    if (gave_ < rounds_ && keeps_from_giving() < 0) {
      give();
      moved = true;
    }
    if (folded_ < gave_ && keeps_from_folding() < 0) {
      fold();
      moved = true;
    }
    if (took_ < folded_ && keeps_from_taking() < 0) {
      take();
      moved = true;
    }
  }
  *done = took_ == rounds_;
  if (*done) {
    before_ += rounds_;
    marked_ = false;
  }
  return {};
}

Waiting BitmapExchange::waiting_for() const {
  const int who = took_ < folded_   ? keeps_from_taking()
                  : folded_ < gave_ ? keeps_from_folding()
                                    : keeps_from_giving();
  return {Waiting::On::rank, who};
}

void BitmapExchange::give() {
  const auto* values = static_cast<const std::byte*>(input_.values);
  for (std::size_t owner = 0; owner < ranks_; ++owner) {
    const auto words = words_of(bitmaps_[rank_], gave_ * ranks_ + owner);
    const std::size_t n = count_bits(words.data(), words.size());
    if (owner == rank_) {
      own_block_[gave_ % kSlots] = given_entries_;
    } else if (n > 0) {
      std::memcpy(window_.data() + given_at(gave_, owner), values + given_entries_ * width_, n * width_);
    }
    given_entries_ += n;
  }
  own().gave.store(before_ + ++gave_, std::memory_order_release);
}

void BitmapExchange::fold() {
  for (std::size_t r = 0; r < ranks_; ++r)
    from_[r] = windows_[r] + given_at(folded_, rank_);
  from_[rank_] = static_cast<const std::byte*>(input_.values) + own_block_[folded_ % kSlots] * width_;
  const std::uint64_t block = folded_ * ranks_ + rank_;
  const std::size_t n = words_of(union_.data(), block).size();
  std::byte* to = window_.data() + sums_at(folded_);
  for (std::size_t first = 0; first < n; first += kPiece)
    to += fold_piece(block, first, std::min(kPiece, n - first), to) * width_;
  own().folded.store(before_ + ++folded_, std::memory_order_release);
}

// Where nothing is missing values are in their places already.
std::size_t BitmapExchange::fold_piece(std::uint64_t block, std::size_t first, std::size_t n, std::byte* to) {
  const std::size_t indices = n * kWordIndices;
  const std::size_t tile_bytes = kPiece * kWordIndices * width_;
  for (std::size_t r = 0; r < ranks_; ++r) {
    const std::uint64_t* words = words_of(bitmaps_[r], block).data() + first;
    std::size_t taken = indices;
    if (count_bits(words, n) == indices) {
      inputs_[r] = from_[r];
    } else {
      std::byte* tile = tiles_.data() + r * tile_bytes;
      taken = kernels_.spread(words, n, from_[r], tile);
      inputs_[r] = tile;
    }
    from_[r] += taken * width_;
  }
  const std::uint64_t* words = words_of(union_.data(), block).data() + first;
  const auto ranks = static_cast<unsigned>(ranks_);
  if (count_bits(words, n) == indices) {
    fold_(to, nullptr, inputs_.data(), ranks, indices);
    return indices;
  }
  std::byte* sums = tiles_.data() + ranks_ * tile_bytes;
  fold_(sums, nullptr, inputs_.data(), ranks, indices);
  return kernels_.pack(words, n, sums, to);
}

void BitmapExchange::put(std::byte* to, const std::byte* from, std::size_t bytes) const {
  if (bytes == 0) return;
  if (streamed_) {
    streamed_copy(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

void BitmapExchange::take() {
  for (std::size_t owner = 0; owner < ranks_; ++owner) {
    const auto words = words_of(union_.data(), took_ * ranks_ + owner);
    const std::size_t n = count_bits(words.data(), words.size());
    put(values_ + taken_entries_ * width_, windows_[owner] + sums_at(took_), n * width_);
    taken_entries_ += n;
  }
  take_indices();
  own().took.store(before_ + ++took_, std::memory_order_release);
}

void BitmapExchange::take_indices() {
  const std::uint64_t round_words = block_words_ * ranks_;
  const std::uint64_t end = std::min(words_, (took_ + 1) * round_words);
  for (std::uint64_t first = took_ * round_words; first < end; first += kStage) {
    const std::size_t n = std::min<std::uint64_t>(kStage, end - first);
    const std::size_t written =
        kernels_.indices(union_.data() + first, n, first * kWordIndices, stage_.data());
    put(indices_ + taken_indices_ * index_bytes_, stage_.data(), written * index_bytes_);
    taken_indices_ += written;
  }
}

}  // namespace heddle
