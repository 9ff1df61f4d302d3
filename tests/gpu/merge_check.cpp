// Merges of sparse vectors on a GPU against the host's (host_sparse.hpp), bit for bit: every type, sums,
// minima and maxima, widths of indices in all mixtures, lists that are empty, equal, apart and of very
// different lengths, tiles that end between equals, room that is too little, merges of many launches, lists
// that break their contract, and that nothing beside the results changes. Also entries as dense vectors,
// which merges are followed by. merge_check LIBCUDA [--short], as sparse_check.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "cuda_memory.hpp"
#include "device_image.hpp"
#include "fold_data.hpp"
#include "gpu/sparse_kernels.hpp"
#include "host_sparse.hpp"
#include "loaded_driver.hpp"

namespace heddle::test {
namespace {

constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i32, DType::i64};
constexpr Op kOps[] = {Op::sum, Op::min, Op::max};
constexpr std::uint64_t kTile = gpu::kernels::kMergeTile;

class Checker {
 public:
  // `tiles`: of a launch.
  Checker(const char* path, std::uint64_t tiles)
      : cuda_(path), driver_(loaded_driver(path)), kernels_(driver_, tiles) {
    cuda_.set_current(cuda_.primary(0));
    driver_.DeviceGetAttribute(&multiprocessors_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
    workspace_ = std::make_unique<TestMemory>(cuda_, Memory::device, gpu::SparseKernels::workspace_bytes());
    // Prepared once, and then as the merge before left it.
    if (!kernels_.prepare(gpu::default_stream(), workspace_->data()).ok()) std::abort();
    char name[256] = "";
    driver_.DeviceGetName(name, sizeof name, 0);
    std::printf("merges on %s, at most %llu tiles a launch, against the host's (%s)\n", name,
                static_cast<unsigned long long>(tiles), host_sparse_name());
  }
  // `widths`: bit k is set where list k has wide indices, bit 2 where the result has.
  bool merge(DType type, Op op, const HostEntries& first, const HostEntries& second, std::uint64_t dimension,
             std::size_t room, unsigned widths, bool is_broken = false);
  // `vectors` of them, the first of which lies `off` elements behind 16 bytes, the others one further each.
  bool spread(DType type, const HostEntries& entries, std::size_t dimension, bool wide, std::size_t vectors,
              std::size_t off);
  std::size_t cases() const { return cases_; }
  std::size_t multiprocessors() const { return static_cast<std::size_t>(multiprocessors_); }

 private:
  char* at(std::size_t place) const { return memory_.at(place); }

  TestDriver cuda_;
  gpu::Driver driver_;
  gpu::SparseKernels kernels_;
  int multiprocessors_ = 0;
  DeviceImage memory_{cuda_};
  std::unique_ptr<TestMemory> workspace_;
  std::size_t cases_ = 0;
};

// Entries of a list, or of a result, in the device's memory, and in its image on the host.
struct Placed {
  Placed(Layout& layout, DType type, std::size_t room, bool wide_indices)
      : width(dtype_size(type)),
        index_bytes(wide_indices ? 8 : 4),
        count(room),
        wide(wide_indices),
        indices(layout.take(room * index_bytes)),
        values(layout.take(room * width)) {}
  // As many as there is room for.
  void put(Bytes& image, const HostEntries& entries) const {
    for (std::size_t i = 0; i < count; ++i)
      std::memcpy(&image[indices + i * index_bytes], &entries.indices[i], index_bytes);
    if (count > 0) std::memcpy(&image[values], entries.values.data(), count * width);
  }
  // What is there in another image.
  void copy(Bytes& image, const Bytes& from) const {
    if (count == 0) return;
    std::memcpy(&image[indices], &from[indices], count * index_bytes);
    std::memcpy(&image[values], &from[values], count * width);
  }
  std::size_t width;
  std::size_t index_bytes;
  std::size_t count;
  bool wide;
  std::size_t indices;
  std::size_t values;
};

// What a merge tells, and how many entries the first list has, where it is the device that knows.
struct Told {
  std::uint64_t count = 0;
  std::uint64_t broken = 0;
  std::uint64_t host_count = 0;
  std::uint64_t host_broken = 0;
  std::uint64_t of_first = 0;
};

// To one place or to several, with more room and less, and wider indices and others. Where a list is broken:
// that this is said, and that nothing beside the results has changed.
bool Checker::merge(DType type, Op op, const HostEntries& first, const HostEntries& second,
                    std::uint64_t dimension, std::size_t room, unsigned widths, bool is_broken) {
  ++cases_;
  const HostEntries want = is_broken ? HostEntries() : host_merge(type, op, first, second);
  if (!is_broken) room = std::min(room, want.indices.size());
  Layout layout;
  const Placed lists[] = {{layout, type, first.indices.size(), (widths & 1U) != 0},
                          {layout, type, second.indices.size(), (widths & 2U) != 0}};
  std::vector<Placed> results;
  const std::size_t places = cases_ % 4 == 0 ? 1 + cases_ / 4 % gpu::SparseKernels::kMostMerged : 1;
  for (std::size_t k = 0; k < places; ++k) {
    const bool is_narrow = k % 2 != 0 && dimension <= std::uint64_t{1} << 32;
    results.push_back({layout, type, room / (k + 1), is_narrow ? (widths & 4U) == 0 : (widths & 4U) != 0});
  }
  Told told{0, 0, 0, 0, first.indices.size()};
  const std::size_t at_told = layout.take(sizeof told);
  Bytes image(layout.end(), kMark);
  lists[0].put(image, first);
  lists[1].put(image, second);
  std::memcpy(&image[at_told], &told, sizeof told);
  memory_.put(image);
  auto* const words = reinterpret_cast<Told*>(at(at_told));
  const auto entries = [&](const Placed& list) {
    return gpu::Entries{at(list.indices), at(list.values), list.count, list.wide};
  };
  std::vector<gpu::Room> rooms;
  for (const Placed& one : results)
    rooms.push_back({at(one.indices), at(one.values), one.count, one.wide});
  gpu::MergeWords tells{&words->count, &words->broken, &words->host_count, &words->host_broken};
  const bool tells_host = cases_ % 2 == 0;
  if (!tells_host) tells.told_count = tells.told_broken = nullptr;
  const Status status = kernels_.merge(gpu::default_stream(), type, op,
                                       {entries(lists[0]), cases_ % 3 == 0 ? &words->of_first : nullptr},
                                       {entries(lists[1])}, dimension, rooms, tells, workspace_->data());
  const Bytes got = memory_.get(image.size());
  std::memcpy(&told, &got[at_told], sizeof told);
  bool told_right = is_broken ? told.broken == 1 : told.count == want.indices.size() && told.broken == 0;
  told_right = told_right && told.of_first == first.indices.size();
  told_right = told_right && told.host_count == (tells_host ? told.count : 0);
  told_right = told_right && told.host_broken == (tells_host ? told.broken : 0);
  std::memcpy(&image[at_told], &told, sizeof told);
  for (const Placed& result : results) {
    if (is_broken) result.copy(image, got);
    if (!is_broken) result.put(image, want);
  }
  if (status.ok() && told_right && got == image) return true;
  std::printf("  wrong: %s of %zu and %zu %s, %zu wanted, room %zu, %zu places, widths %u%s %s\n",
              op_name(op), first.indices.size(), second.indices.size(), dtype_name(type), want.indices.size(),
              room, places, widths, is_broken ? ", broken" : "", status.message().c_str());
  return false;
}

// Sometimes it is the device that knows how many entries there are, and the room has others behind them; of
// -0 becomes +0, or not; and where a list was broken nothing happens.
bool Checker::spread(DType type, const HostEntries& entries, std::size_t dimension, bool wide,
                     std::size_t vectors, std::size_t off) {
  ++cases_;
  const std::size_t width = dtype_size(type);
  const bool from_zero = cases_ % 2 == 0;
  const bool is_counted = cases_ % 3 == 0;
  const std::uint64_t words[] = {is_counted ? entries.indices.size() / 2 : entries.indices.size(),
                                 cases_ % 8 == 0 ? 1U : 0U};
  Layout layout;
  const Placed list{layout, type, entries.indices.size(), wide};
  const std::size_t at_words = layout.take(sizeof words);
  std::vector<std::size_t> places;
  for (std::size_t k = 0; k < vectors; ++k)
    places.push_back(layout.take((dimension + off + k) * width) + (off + k) * width);
  Bytes image(layout.end(), kMark);
  list.put(image, entries);
  std::memcpy(&image[at_words], words, sizeof words);
  memory_.put(image);
  std::vector<void*> dense;
  for (const std::size_t place : places)
    dense.push_back(at(place));
  auto* const told = reinterpret_cast<std::uint64_t*>(at(at_words));
  const Status status = kernels_.spread(
      gpu::default_stream(), type,
      {{at(list.indices), at(list.values), list.count, list.wide}, is_counted ? told : nullptr}, from_zero,
      told + 1, dense, dimension);
  for (const std::size_t place : places) {
    if (words[1] != 0 || dimension == 0) continue;
    std::memset(&image[place], 0, dimension * width);
    for (std::size_t i = 0; i < words[0]; ++i) {
      std::uint8_t* const to = &image[place + entries.indices[i] * width];
      std::memcpy(to, &entries.values[i * width], width);
      const bool is_float = type != DType::i32 && type != DType::i64;
      const bool is_zero = std::all_of(to, to + width - 1, [](std::uint8_t byte) { return byte == 0; });
      if (from_zero && is_float && is_zero && to[width - 1] == 0x80) to[width - 1] = 0;
    }
  }
  if (status.ok() && memory_.get(image.size()) == image) return true;
  std::printf("  wrong: %zu entries of %zu %s as %zu vectors, %zu off%s %s\n", entries.indices.size(),
              dimension, dtype_name(type), vectors, off, wide ? ", wide" : "", status.message().c_str());
  return false;
}

// Those of `from` to `to` - 1 by `step`.
HostEntries entries_at(DType type, std::uint64_t from, std::uint64_t to, std::uint64_t step,
                       std::mt19937_64& random) {
  HostEntries entries;
  for (std::uint64_t index = from; index < to; index += step)
    entries.indices.push_back(index);
  if (!entries.indices.empty()) entries.values = wild_elements(type, entries.indices.size(), random);
  return entries;
}

HostEntries entries_among(DType type, std::uint64_t n, std::uint64_t one_in, std::mt19937_64& random) {
  HostEntries entries;
  for (std::uint64_t index = 0; index < n; ++index)
    if (random() % one_in == 0) entries.indices.push_back(index);
  if (!entries.indices.empty()) entries.values = wild_elements(type, entries.indices.size(), random);
  return entries;
}

bool check_merge(Checker& checker, std::mt19937_64& random, bool brief) {
  bool right = true;
  unsigned turn = 0;
  const auto merge = [&](DType type, const HostEntries& first, const HostEntries& second,
                         std::uint64_t dimension, std::size_t room = SIZE_MAX) {
    const bool is_long = dimension > std::uint64_t{1} << 32;
    for (const Op op : kOps)
      right = checker.merge(type, op, first, second, dimension, room, is_long ? 7 : turn++ % 8) && right;
  };
  for (const DType type : kTypes) {
    const auto at = [&](std::uint64_t from, std::uint64_t to, std::uint64_t step) {
      return entries_at(type, from, to, step, random);
    };
    merge(type, {}, {}, 1);
    merge(type, at(5, 9, 1), {}, 9);
    merge(type, {}, at(0, 3000, 1), 3000);
    // All equal, and so that a tile ends between equals; none equal; the one behind the other; one far
    // longer.
    const std::uint64_t n = 2 * kTile + 77;
    merge(type, at(0, n, 1), at(0, n, 1), n);
    merge(type, at(1, n, 1), at(0, n, 1), n);
    merge(type, at(0, n, 2), at(1, n, 2), n, n - 5);
    merge(type, at(n, 2 * n, 1), at(0, n, 1), 2 * n);
    merge(type, at(0, n, 1), at(n, 2 * n, 1), 2 * n);
    merge(type, at(0, 3 * n, 1), at(n, n + 2, 1), 3 * n, n);
    merge(type, at(n, n + 2, 1), at(0, 3 * n, 1), 3 * n, 0);
    // Where narrower numbers end.
    for (const int bits : {31, 32}) {
      const std::uint64_t edge = std::uint64_t{1} << bits;
      merge(type, at(edge - 40, edge, 3), at(edge - 30, edge, 1), edge);
      merge(type, at(edge - 40, edge + 40, 3), at(edge - 30, edge + 30, 1), 2 * edge + 1);
      merge(type, at(0, 2 * edge, edge / 4), at(edge / 4, 4 * edge, edge / 2), 4 * edge);
    }
  }
  for (int i = 0; i < (brief ? 6 : 40); ++i) {
    const std::uint64_t n = random() % 40'000;
    const DType type = kTypes[random() % 6];
    merge(type, entries_among(type, n, 1 + random() % 6, random),
          entries_among(type, n, 1 + random() % 6, random), n, random() % 3 == 0 ? n / 3 : SIZE_MAX);
  }
  return right;
}

// Wherever it is: an index that comes again, one that is less than the one before, one that is not less than
// the dimension.
bool check_broken_merge(Checker& checker, std::mt19937_64& random) {
  bool right = true;
  constexpr std::uint64_t kCount = kTile + 50;
  const HostEntries whole = entries_at(DType::f32, 0, 2 * kCount, 2, random);
  for (const std::uint64_t at :
       {std::uint64_t{1}, kTile / 2 - 1, kTile / 2, kTile / 2 + 1, kTile - 1, kTile, kTile + 1, kCount - 1}) {
    for (const std::uint64_t index :
         {whole.indices[at - 1], std::uint64_t{0}, 2 * kCount, (std::uint64_t{1} << 32) + 2 * at}) {
      HostEntries broken = whole;
      broken.indices[at] = index;
      right = checker.merge(DType::f32, Op::sum, broken, whole, 2 * kCount, 2 * kCount, 7, true) && right;
      right = checker.merge(DType::f32, Op::max, whole, broken, 2 * kCount, 2 * kCount, 7, true) && right;
    }
  }
  // Where the one part comes before the other tiles would be longer than they are.
  const HostEntries longer = entries_at(DType::f32, 0, 10 * kTile, 2, random);
  HostEntries turned = longer;
  std::rotate(turned.indices.begin(), turned.indices.begin() + 3'000, turned.indices.end());
  right = checker.merge(DType::f32, Op::sum, turned, longer, 10 * kTile, 9 * kTile, 7, true) && right;
  right = checker.merge(DType::f32, Op::min, longer, turned, 10 * kTile, 9 * kTile, 7, true) && right;
  // Nothing is in order.
  HostEntries shuffled = whole;
  std::shuffle(shuffled.indices.begin(), shuffled.indices.end(), random);
  right = checker.merge(DType::f32, Op::sum, shuffled, shuffled, 2 * kCount, 100, 0, true) && right;
  right = checker.merge(DType::f32, Op::sum, shuffled, whole, 2 * kCount, 100, 0, true) && right;
  return right;
}

bool check_spread(Checker& checker, std::mt19937_64& random, bool brief) {
  bool right = true;
  unsigned turn = 0;
  for (const DType type : kTypes) {
    const std::size_t tile = gpu::kernels::kSpreadTile / dtype_size(type);
    for (const std::size_t n : {std::size_t{1}, std::size_t{77}, tile - 1, tile, 2 * tile, 3 * tile + 5}) {
      for (const std::uint64_t one_in : {1, 3, 100, 100'000}) {
        ++turn;
        right = checker.spread(type, entries_among(type, n, one_in, random), n, turn % 2 == 0,
                               1 + turn % gpu::SparseKernels::kMostSpread, turn % 3) &&
                right;
      }
    }
  }
  // More tiles than blocks.
  const std::size_t n = (brief ? 300'000 : 8'000'000) + 3;
  return checker.spread(DType::f32, entries_among(DType::f32, n, 100, random), n, false, 2, 0) && right;
}

// More tiles than blocks run at once, and blocks that wait for each other.
bool check_large_merge(Checker& checker, std::mt19937_64& random) {
  const std::uint64_t n = checker.multiprocessors() * kTile * 9 + 1003;
  return checker.merge(DType::f32, Op::sum, entries_among(DType::f32, n, 3, random),
                       entries_among(DType::f32, n, 2, random), n, n, 0);
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) {
  using namespace heddle::test;
  if (argc < 2) return 2;
  const bool brief = argc > 2 && std::strcmp(argv[2], "--short") == 0;
  std::mt19937_64 random(11);
  Checker checker(argv[1], heddle::gpu::kernels::kMostTiles);
  bool right = say("merge", check_merge(checker, random, brief));
  right = say("merge of broken lists", check_broken_merge(checker, random)) && right;
  right = say("entries as dense vectors", check_spread(checker, random, brief)) && right;
  if (!brief) right = say("large merges", check_large_merge(checker, random)) && right;
  // Many launches for one merge.
  Checker little(argv[1], 1);
  right = say("merge in many launches", check_merge(little, random, true)) && right;
  std::printf("  %zu cases\n", checker.cases() + little.cases());
  return right ? 0 : 1;
}
