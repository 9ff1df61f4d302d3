// Codes of indices on a GPU against the host's (host_sparse.hpp), byte for byte and back: sets that are
// empty, full, of one index, at random, in clusters and far apart, widths of 32 and 64 bits, ranges up to the
// last index that there is, codes wherever they lie, room that is too little, codes of many launches, codes
// that no encoder wrote, and that nothing beside the results changes. index_check LIBCUDA [--short], as
// sparse_check.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cuda_memory.hpp"
#include "device_image.hpp"
#include "gpu/sparse_kernels.hpp"
#include "host_sparse.hpp"
#include "loaded_driver.hpp"

namespace heddle::test {
namespace {

using Bytes = DeviceImage::Bytes;
using Indices = std::vector<std::uint64_t>;

constexpr IndexCode kCodes[] = {IndexCode::bitmap, IndexCode::delta};
constexpr std::uint64_t kNarrow = std::uint64_t{1} << 32;

const char* name_of(IndexCode code) {
  return code == IndexCode::bitmap ? "bitmap" : "delta";
}

std::size_t index_bytes(bool wide) {
  return wide ? 8 : 4;
}

void put_indices(Bytes& image, std::size_t place, const Indices& indices, bool wide) {
  for (std::size_t i = 0; i < indices.size(); ++i)
    std::memcpy(&image[place + i * index_bytes(wide)], &indices[i], index_bytes(wide));
}

void put_bytes(Bytes& image, std::size_t place, const Bytes& bytes, std::size_t count) {
  if (count > 0) std::memcpy(&image[place], bytes.data(), count);
}

class Checker {
 public:
  // `tiles`: of a launch.
  Checker(const char* path, std::uint64_t tiles)
      : cuda_(path), driver_(loaded_driver(path)), kernels_(driver_, tiles) {
    cuda_.set_current(cuda_.primary(0));
    driver_.DeviceGetAttribute(&multiprocessors_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
    workspace_ = std::make_unique<TestMemory>(cuda_, Memory::device, gpu::SparseKernels::workspace_bytes());
    // Prepared once, and then as the codes before left it.
    if (!kernels_.prepare(gpu::default_stream(), workspace_->data()).ok()) std::abort();
    char name[256] = "";
    driver_.DeviceGetName(name, sizeof name, 0);
    std::printf("codes of indices on %s, at most %llu tiles a launch, against the host's (%s)\n", name,
                static_cast<unsigned long long>(tiles), host_sparse_name());
  }
  // `offset`: of the codes, from 16 bytes on.
  bool pack(IndexCode code, const Indices& indices, const gpu::IndexRange& range, bool wide,
            std::size_t offset, std::size_t room = SIZE_MAX);
  // Of `count` indices; what the host makes of it.
  bool unpack(IndexCode code, const Bytes& codes, const gpu::IndexRange& range, std::size_t count, bool wide,
              std::size_t offset);
  // All of them, with a message in which there is this.
  bool refuses(const gpu::IndexRange& range, std::size_t offset, const char* says);
  // There and back.
  bool both(IndexCode code, const Indices& indices, const gpu::IndexRange& range, bool wide) {
    const std::size_t offset = code == IndexCode::bitmap ? 8 * (cases_ % 2) : cases_ % 17;
    return pack(code, indices, range, wide, offset) &&
           unpack(code, host_pack(code, indices, range, wide), range, indices.size(), wide, offset);
  }
  std::size_t cases() const { return cases_; }
  std::size_t refused() const { return refused_; }
  std::size_t multiprocessors() const { return static_cast<std::size_t>(multiprocessors_); }

 private:
  char* at(std::size_t place) const { return memory_.at(place); }
  std::uint64_t* word_at(std::size_t place) const { return reinterpret_cast<std::uint64_t*>(at(place)); }
  bool say_wrong(const char* what, IndexCode code, std::size_t count, const gpu::IndexRange& range, bool wide,
                 std::size_t offset, const Status& status) const;

  TestDriver cuda_;
  gpu::Driver driver_;
  gpu::SparseKernels kernels_;
  int multiprocessors_ = 0;
  DeviceImage memory_{cuda_};
  std::unique_ptr<TestMemory> workspace_;
  std::size_t cases_ = 0;
  std::size_t refused_ = 0;
};

bool Checker::say_wrong(const char* what, IndexCode code, std::size_t count, const gpu::IndexRange& range,
                        bool wide, std::size_t offset, const Status& status) const {
  std::printf("  wrong: %s of %s, %zu indices of %d bits in %llu from %llu on, offset %zu %s\n", what,
              name_of(code), count, wide ? 64 : 32, static_cast<unsigned long long>(range.span),
              static_cast<unsigned long long>(range.first), offset, status.message().c_str());
  return false;
}

bool Checker::pack(IndexCode code, const Indices& indices, const gpu::IndexRange& range, bool wide,
                   std::size_t offset, std::size_t room) {
  ++cases_;
  const Bytes want = host_pack(code, indices, range, wide);
  const std::size_t taken = std::min(room, want.size());
  Layout layout;
  const std::size_t at_indices = layout.take(indices.size() * index_bytes(wide));
  const std::size_t at_codes = layout.take(taken + offset) + offset;
  const std::size_t at_count = layout.take(sizeof(std::uint64_t));
  Bytes image(layout.end(), kMark);
  put_indices(image, at_indices, indices, wide);
  memory_.put(image);
  const gpu::Entries entries{at(at_indices), nullptr, indices.size(), wide};
  const Status status = code == IndexCode::bitmap
                            ? kernels_.pack_bitmap(gpu::default_stream(), entries, range, at(at_codes))
                            : kernels_.pack_delta(gpu::default_stream(), entries, range, at(at_codes), taken,
                                                  word_at(at_count), workspace_->data());
  put_bytes(image, at_codes, want, taken);
  const std::uint64_t bytes = want.size();
  if (code == IndexCode::delta) std::memcpy(&image[at_count], &bytes, sizeof bytes);
  return (status.ok() && memory_.get(image.size()) == image) ||
         say_wrong("encoding", code, indices.size(), range, wide, offset, status);
}

bool Checker::unpack(IndexCode code, const Bytes& codes, const gpu::IndexRange& range, std::size_t count,
                     bool wide, std::size_t offset) {
  ++cases_;
  Indices want(count);
  const bool is_right = host_unpack(code, codes, range, wide, &want);
  if (!is_right) ++refused_;
  Layout layout;
  const std::size_t at_codes = layout.take(codes.size() + offset) + offset;
  const std::size_t at_indices = layout.take(count * index_bytes(wide));
  const std::size_t at_bad = layout.take(sizeof(std::uint64_t));
  Bytes image(layout.end(), kMark);
  put_bytes(image, at_codes, codes, codes.size());
  std::memset(&image[at_bad], 0, sizeof(std::uint64_t));
  memory_.put(image);
  const gpu::Room to{at(at_indices), nullptr, count, wide};
  const Status status = code == IndexCode::bitmap
                            ? kernels_.unpack_bitmap(gpu::default_stream(), at(at_codes), range, to,
                                                     word_at(at_bad), workspace_->data())
                            : kernels_.unpack_delta(gpu::default_stream(), at(at_codes), codes.size(), range,
                                                    to, word_at(at_bad), workspace_->data());
  const Bytes got = memory_.get(image.size());
  const std::uint64_t bad = is_right ? 0 : 1;
  std::memcpy(&image[at_bad], &bad, sizeof bad);
  if (is_right) put_indices(image, at_indices, want, wide);
  if (!is_right && count > 0) std::memcpy(&image[at_indices], &got[at_indices], count * index_bytes(wide));
  return (status.ok() && got == image) ||
         say_wrong(is_right ? "decoding" : "refusing", code, count, range, wide, offset, status);
}

bool Checker::refuses(const gpu::IndexRange& range, std::size_t offset, const char* says) {
  memory_.put(Bytes(256, kMark));
  void* const codes = at(64 + offset);
  const gpu::Room to{at(128), nullptr, 1, false};
  const gpu::Entries entries{at(128), nullptr, 1, false};
  const Status all[] = {
      kernels_.pack_bitmap(gpu::default_stream(), entries, range, codes),
      kernels_.unpack_bitmap(gpu::default_stream(), codes, range, to, word_at(192), workspace_->data()),
      kernels_.pack_delta(gpu::default_stream(), entries, range, codes, 8, word_at(192), workspace_->data()),
      kernels_.unpack_delta(gpu::default_stream(), codes, 8, range, to, word_at(192), workspace_->data())};
  // Deltas may lie anywhere.
  const std::size_t refused = offset == 0 ? 4 : 2;
  bool right = true;
  for (std::size_t i = 0; i < refused; ++i) {
    const bool is_said = !all[i].ok() && all[i].message().find(says) != std::string::npos;
    if (!is_said) std::printf("  wrong: code %zu of indices says \"%s\"\n", i, all[i].message().c_str());
    right = is_said && right;
  }
  return right;
}

// ---- Sets

Indices one_in(std::uint64_t n, const gpu::IndexRange& range, std::mt19937_64& random) {
  Indices indices;
  for (std::uint64_t i = 0; i < range.span; ++i)
    if (random() % n == 0) indices.push_back(range.first + i);
  return indices;
}

// Runs with much or little between them.
Indices clustered(const gpu::IndexRange& range, std::mt19937_64& random) {
  Indices indices;
  for (std::uint64_t i = random() % 2'000; i < range.span; i += 1 + random() % 20'000) {
    for (std::uint64_t left = 1 + random() % 3'000; left > 0 && i < range.span; --left, ++i)
      indices.push_back(range.first + i);
  }
  return indices;
}

// Gaps of all lengths that a number has, up to `bits` bits.
Indices spread(std::size_t count, unsigned bits, const gpu::IndexRange& range, std::mt19937_64& random) {
  Indices indices;
  std::uint64_t least = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t gap = random() >> (64 - 1 - random() % bits);
    if (least >= range.span || gap >= range.span - least) break;
    indices.push_back(range.first + least + gap);
    least += gap + 1;
  }
  return indices;
}

// ---- What is checked

bool check_sets(Checker& checker, std::mt19937_64& random, bool brief) {
  bool right = true;
  const auto both = [&](const Indices& indices, const gpu::IndexRange& range, bool wide) {
    for (const IndexCode code : kCodes)
      right = checker.both(code, indices, range, wide) && right;
  };
  for (const bool wide : {false, true}) {
    // At the beginning of a vector, and at the end of the longest.
    for (const std::uint64_t n : {0U, 1U, 5U, 8U, 63U, 64U, 65U, 1'000U, 16'384U, 16'385U, 70'003U}) {
      for (const std::uint64_t first : {std::uint64_t{0}, (wide ? UINT64_MAX : kNarrow) - n}) {
        const gpu::IndexRange range{first, n};
        both({}, range, wide);
        both(one_in(1, range, random), range, wide);
        both(one_in(3, range, random), range, wide);
        both(one_in(100, range, random), range, wide);
        both(clustered(range, random), range, wide);
        for (const std::uint64_t at : {std::uint64_t{0}, n / 2, n - 1})
          if (n > 0) both({first + at}, range, wide);
      }
    }
  }
  for (int i = 0; i < (brief ? 4 : 30); ++i) {
    const gpu::IndexRange range{random() % 1'000, random() % 300'000};
    both(one_in(1 + random() % 40, range, random), range, i % 2 != 0);
    both(clustered(range, random), range, i % 2 == 0);
  }
  return right;
}

// Numbers of all lengths, where bits would be too many.
bool check_spread(Checker& checker, std::mt19937_64& random, bool brief) {
  bool right = true;
  for (int i = 0; i < (brief ? 10 : 60); ++i) {
    const bool wide = i % 2 != 0;
    const unsigned bits = wide ? 5 + static_cast<unsigned>(i) % 59 : 5 + static_cast<unsigned>(i) % 27;
    const gpu::IndexRange range{random() % 50, wide ? UINT64_MAX - 50 : kNarrow - 50};
    const Indices indices = spread(20'000, bits, range, random);
    right = checker.both(IndexCode::delta, indices, range, wide) && right;
    const std::size_t all = host_pack(IndexCode::delta, indices, range, wide).size();
    for (const std::size_t room : {std::size_t{0}, all / 3, all - std::min<std::size_t>(all, 1)})
      right = checker.pack(IndexCode::delta, indices, range, wide, i % 17, room) && right;
  }
  // The last index alone, by a number of ten bytes; the first and the last; all of the last ones.
  const gpu::IndexRange whole{0, UINT64_MAX};
  right = checker.both(IndexCode::delta, {UINT64_MAX - 1}, whole, true) && right;
  right = checker.both(IndexCode::delta, {0, UINT64_MAX - 1}, whole, true) && right;
  Indices last;
  for (std::uint64_t back = 5'000; back > 0; --back)
    last.push_back(UINT64_MAX - back);
  return checker.both(IndexCode::delta, last, whole, true) && right;
}

// What an encoder writes, but for a byte, a bit, an end, a count or a range.
bool check_damaged(Checker& checker, std::mt19937_64& random, bool brief) {
  bool right = true;
  const std::size_t refused = checker.refused();
  std::size_t cases = 0;
  for (int i = 0; i < (brief ? 300 : 3'000); ++i) {
    const IndexCode code = kCodes[i % 2];
    const bool wide = random() % 2 != 0;
    const std::uint64_t n = 1 + random() % (i % 10 == 0 ? 40'000 : 300);
    gpu::IndexRange range{random() % 10, n};
    Indices indices =
        random() % 3 == 0 ? clustered(range, random) : one_in(1 + random() % 200, range, random);
    if (code == IndexCode::delta && random() % 3 == 0) {
      range.span = wide ? UINT64_MAX - 20 : kNarrow - 20;
      indices = spread(n, wide ? 60 : 28, range, random);
    }
    Bytes codes = host_pack(code, indices, range, wide);
    std::size_t count = indices.size();
    const std::size_t at = codes.empty() ? 0 : random() % codes.size();
    const unsigned what = static_cast<unsigned>(random() % 7);
    if (what == 0 && !codes.empty()) codes[at] ^= static_cast<std::uint8_t>(1U << random() % 8);
    if (what == 1 && !codes.empty()) codes[at] = static_cast<std::uint8_t>(random());
    if (what == 2) count += 1;
    if (what == 3 && count > 0) count -= 1;
    if (what == 4 && code == IndexCode::delta) codes.push_back(static_cast<std::uint8_t>(random()));
    if (what == 5 && code == IndexCode::delta && !codes.empty()) codes.pop_back();
    if (what == 6 && code == IndexCode::delta && count > 0) range.span = indices.back() - range.first;
    if (what == 6 && code == IndexCode::bitmap) range.span -= random() % (1 + (range.span - 1) % 8);
    ++cases;
    right = checker.unpack(code, codes, range, count, wide, code == IndexCode::bitmap ? 0 : at % 17) && right;
  }
  const std::size_t bad = checker.refused() - refused;
  if (bad < cases / 3 || bad > cases - cases / 20) {
    std::printf("  wrong: %zu of %zu damaged codes were refused\n", bad, cases);
    right = false;
  }
  return right;
}

// Numbers that are too long, have a byte too many, run over 64 bits, or have no end; alone, and behind and
// between so many others that they lie at the ends of threads' parts and tiles.
bool check_numbers(Checker& checker) {
  bool right = true;
  const Bytes most = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01};
  Bytes too_much = most;
  too_much.back() = 2;
  // Of which 64 bits are 0.
  Bytes too_long(11, 0x80);
  too_long.back() = 2;
  const Bytes numbers[] = {most,   too_much,        too_long,          {0x80, 0x00}, {0x81, 0x80, 0x00},
                           {0x80}, {0xFF, 0x7F},    Bytes(40, 0x80),   {0x80, 0x01}, {0x00},
                           {0x7F}, Bytes(16, 0x80), Bytes(5'000, 0xFF)};
  for (const Bytes& number : numbers) {
    for (const std::size_t before : {0U, 1U, 6U, 15U, 16U, 4'080U, 4'090U, 4'095U, 4'096U, 4'097U}) {
      for (const std::size_t after : {0U, 1U, 5'000U}) {
        Bytes codes(before, 0);
        codes.insert(codes.end(), number.begin(), number.end());
        codes.insert(codes.end(), after, 1);
        for (const std::uint64_t span : {std::uint64_t{1} << 40, UINT64_MAX})
          right = checker.unpack(IndexCode::delta, codes, {0, span}, before + 1 + after, true, before % 17) &&
                  right;
      }
    }
  }
  // Two halves of all that there is: together they run over, and what comes behind looks as if it were in the
  // range.
  Bytes half(9, 0xFF);
  half.back() = 0x7F;
  for (const std::size_t between : {0U, 5'000U}) {
    Bytes codes = half;
    codes.insert(codes.end(), between, 0);
    codes.insert(codes.end(), half.begin(), half.end());
    codes.insert(codes.end(), between, 0);
    right = checker.unpack(IndexCode::delta, codes, {0, UINT64_MAX}, 2 * between + 2, true, 3) && right;
  }
  return right;
}

// What is said of what kernels do not serve.
bool check_unserved(Checker& checker) {
  bool right = true;
  right = checker.refuses({0, kNarrow + 1}, 0, "do not fit into 32 bits") && right;
  right = checker.refuses({kNarrow, 1}, 0, "do not fit into 32 bits") && right;
  right = checker.refuses({UINT64_MAX, 1}, 0, "do not fit into 32 bits") && right;
  return checker.refuses({0, 64}, 4, "aligned to 8 bytes") && right;
}

// More tiles than blocks run at once, and blocks that wait for each other.
bool check_large(Checker& checker, std::mt19937_64& random) {
  const std::uint64_t n = checker.multiprocessors() * 16'384 * 13 + 1'003;
  bool right = true;
  for (const std::uint64_t one : {2U, 9U}) {
    const gpu::IndexRange range{7, n};
    const Indices indices = one_in(one, range, random);
    for (const IndexCode code : kCodes)
      right = checker.both(code, indices, range, false) && right;
  }
  const gpu::IndexRange whole{0, UINT64_MAX};
  return checker.both(IndexCode::delta, spread(checker.multiprocessors() * 20'000, 40, whole, random), whole,
                      true) &&
         right;
}

bool check_all(Checker& checker, bool brief, bool large) {
  std::mt19937_64 random(11);
  bool right = say("sets of indices", check_sets(checker, random, brief));
  right = say("indices far apart", check_spread(checker, random, brief)) && right;
  right = say("damaged codes", check_damaged(checker, random, brief)) && right;
  right = say("numbers that are none", check_numbers(checker)) && right;
  right = say("what is not served", check_unserved(checker)) && right;
  if (large) right = say("large sets", check_large(checker, random)) && right;
  std::printf("  %zu cases, of which %zu are no codes\n", checker.cases(), checker.refused());
  return right;
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) {
  using heddle::test::Checker;
  if (argc < 2) return 2;
  const bool brief = argc > 2 && std::strcmp(argv[2], "--short") == 0;
  Checker checker(argv[1], heddle::gpu::kernels::kMostTiles);
  const bool right = heddle::test::check_all(checker, brief, !brief);
  // Many launches for one code.
  Checker little(argv[1], 2);
  const bool in_parts = heddle::test::check_all(little, true, false);
  return right && in_parts ? 0 : 1;
}
