#include "device/device_shares.hpp"

#include <algorithm>
#include <vector>

#include "base/round_up.hpp"

namespace heddle {
namespace {

// Longer pieces gain nothing: a share of this size takes any network longer than what each piece costs
// besides. Not measured.
constexpr std::size_t kMostShare = std::size_t{4} << 20;
// Shorter ones would wait for meetings and messages more than for bytes. Not measured.
constexpr std::size_t kLeastShare = std::size_t{256} << 10;
// A vector goes in so many pieces where these bounds allow it: the first and the last overlap with nothing.
constexpr std::size_t kPieces = 8;

}  // namespace

SharesLayout SharesLayout::of(std::size_t bytes, int lanes) {
  SharesLayout layout;
  layout.lanes = lanes;
  const std::size_t most = bytes / (2 * static_cast<std::size_t>(lanes) + 3);
  layout.share = std::min(kMostShare, most / kShareGrain * kShareGrain);
  return layout;
}

// ---- Where things are

SharesPieces::SharesPieces(const SharesLayout& layout, int rank, std::size_t bytes)
    : rank_(rank), lanes_(layout.lanes), bytes_(bytes) {
  const std::size_t wanted = share_of(div_up(bytes_, kPieces), 0, layout.lanes).bytes;
  const std::size_t share =
      std::clamp(round_up(wanted, kShareGrain), std::min(kLeastShare, layout.share), layout.share);
  piece_ = share * static_cast<std::size_t>(layout.lanes);
}

Extent SharesPieces::piece(std::size_t k) const {
  const std::size_t begin = k * piece_;
  return {begin, std::min(piece_, bytes_ - begin)};
}

Extent SharesPieces::own(std::size_t k) const {
  if (rank_ >= lanes_) return {0, 0};
  return share_of(piece(k).bytes, rank_, lanes_);
}

std::byte* SharesWork::given(int rank, std::size_t k) const {
  return worker_.link->scratch(rank) + k % 2 * layout_.piece();
}

std::byte* SharesWork::result(int rank, std::size_t k) const {
  return worker_.link->scratch(rank) + 2 * layout_.piece() + k % 2 * layout_.share;
}

// ---- What both do

Status SharesWork::store(std::size_t k, const std::byte* from, std::size_t bytes) {
  return host_.on_gpu() ? worker_.link->copy(host_.at(k), from, bytes)
                        : worker_.link->to_host(host_.at(k), from, bytes);
}

Status SharesWork::load(std::byte* to, std::size_t k, std::size_t bytes) {
  return host_.on_gpu() ? worker_.link->copy(to, host_.at(k), bytes)
                        : worker_.link->to_device(to, host_.at(k), bytes);
}

Status SharesWork::fetch_back(std::size_t k) {
  HEDDLE_TRY(host_.await(k));
  const Extent mine = own(k);
  if (mine.bytes == 0) return {};
  std::byte* const to = alone() ? out_ + piece(k).begin : result(worker_.rank, k);
  return load(to, k, mine.bytes);
}

Status SharesWork::spread(std::size_t k) {
  if (alone()) return {};
  const Extent e = piece(k);
  for (int lane = 0; lane < layout_.lanes; ++lane) {
    const Extent theirs = share_of(e.bytes, lane, layout_.lanes);
    HEDDLE_TRY(worker_.link->copy(out_ + e.begin + theirs.begin, result(lane, k), theirs.bytes));
  }
  return {};
}

// ---- Sums

std::byte* SharesSum::node_sum() const {
  return worker_.link->scratch(worker_.rank) + 2 * layout_.piece() + 2 * layout_.share;
}

Status SharesSum::first() {
  HEDDLE_TRY(worker_.link->after_earlier_work());
  return hand_out(0);
}

// What may wait for the other nodes comes last.
Status SharesSum::step(std::size_t t) {
  const std::size_t pieces = pieces_.count();
  if (t >= 3) HEDDLE_TRY(spread(t - 3));
  if (t < pieces) HEDDLE_TRY(fold(t));
  if (t < pieces) HEDDLE_TRY(host_.release(t));
  if (t + 1 < pieces) HEDDLE_TRY(hand_out(t + 1));
  return t >= 2 && t - 2 < pieces ? fetch_back(t - 2) : Status();
}

// All but this rank's own share, which nobody else reads.
Status SharesSum::hand_out(std::size_t k) {
  if (alone()) return {};
  const Extent e = piece(k);
  const Extent mine = own(k);
  const std::size_t after = mine.begin + mine.bytes;
  std::byte* const to = given(worker_.rank, k);
  HEDDLE_TRY(worker_.link->copy(to, sum_.in + e.begin, mine.begin));
  return worker_.link->copy(to + after, sum_.in + e.begin + after, e.bytes - after);
}

Status SharesSum::fold(std::size_t k) {
  const Extent mine = own(k);
  if (mine.bytes == 0) return {};
  const std::byte* const from = sum_.in + piece(k).begin + mine.begin;
  if (alone()) return store(k, from, mine.bytes);
  std::vector<const void*> inputs;
  for (int r = 0; r < worker_.size; ++r)
    inputs.push_back(r == worker_.rank ? from : given(r, k) + mine.begin);
  void* const outputs[] = {host_.on_gpu() ? host_.at(k) : node_sum()};
  HEDDLE_TRY(worker_.link->fold(sum_.type, sum_.op, inputs, outputs, elements(k)));
  return host_.on_gpu() ? Status() : store(k, node_sum(), mine.bytes);
}

Status SharesSum::start(Across& across, std::size_t k) {
  return across.start_sum(k % SharesLayout::kSlots, host_.at(k), elements(k), sum_.type, sum_.op,
                          host_.work_on(k, sum_.type, sum_.op));
}

// ---- Bcasts

Status SharesBcast::first() {
  HEDDLE_TRY(worker_.link->after_earlier_work());
  return is_root() ? hand_out(0) : Status();
}

Status SharesBcast::step(std::size_t t) {
  const std::size_t pieces = pieces_.count();
  const bool with_root = member_ >= 0;
  if (!with_root && t >= 3) HEDDLE_TRY(spread(t - 3));
  if (with_root && t < pieces) HEDDLE_TRY(take(t));
  if (t < pieces) HEDDLE_TRY(host_.release(t));
  if (is_root() && t + 1 < pieces) HEDDLE_TRY(hand_out(t + 1));
  if (t < 2 || t - 2 >= pieces) return {};
  return with_root ? host_.await(t - 2) : fetch_back(t - 2);
}

Status SharesBcast::hand_out(std::size_t k) {
  if (alone()) return {};
  const Extent e = piece(k);
  return worker_.link->copy(given(worker_.rank, k), bcast_.buffer + e.begin, e.bytes);
}

// Of a piece that the root has handed out: the share to the host, and all of it to the output.
Status SharesBcast::take(std::size_t k) {
  const Extent e = piece(k);
  const Extent mine = own(k);
  std::byte* const at = bcast_.buffer + e.begin;
  const std::byte* const from = is_root() ? at : given(member_, k);
  if (mine.bytes > 0) HEDDLE_TRY(store(k, from + mine.begin, mine.bytes));
  return is_root() ? Status() : worker_.link->copy(at, from, e.bytes);
}

Status SharesBcast::start(Across& across, std::size_t k) {
  return across.start_bcast(k % SharesLayout::kSlots, host_.at(k), own(k).bytes, bcast_.root,
                            host_.work_on(k, DType::u8, Op::max));
}

}  // namespace heddle
