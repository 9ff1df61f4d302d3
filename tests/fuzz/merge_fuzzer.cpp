// Any few streams: what comes out is what a map gives. Integers, so that every bit is known.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <vector>

#include "sparse/merge.hpp"

namespace {

struct Stream {
  std::vector<std::uint64_t> indices;
  std::vector<std::uint32_t> values;
};

// Gaps of any size: the byte's upper half is how many bits, repeated as often as the next byte says.
Stream read_stream(const std::uint8_t*& data, std::size_t& left) {
  Stream stream;
  std::uint64_t at = 0;
  while (left >= 3) {
    const unsigned bits = data[0] >> 2;
    const std::uint64_t gap = (std::uint64_t{data[0]} & 3) << (bits > 60 ? 60 : bits);
    const unsigned repeats = data[1];
    const std::uint8_t value = data[2];
    data += 3;
    left -= 3;
    if (repeats == 0) break;
    for (unsigned k = 0; k < repeats; ++k) {
      if (gap > UINT64_MAX - at) return stream;
      at += gap;
      stream.indices.push_back(at);
      stream.values.push_back(value * 0x01010101U + k);
      if (at == UINT64_MAX) return stream;
      ++at;
    }
  }
  return stream;
}

template <typename Index>
void check(const std::vector<Stream>& streams, heddle::Op op) {
  using namespace heddle;
  std::map<Index, std::int32_t> expected;
  std::vector<std::vector<Index>> indices(streams.size());
  std::vector<SparseView> views;
  std::size_t room = 0;
  for (std::size_t s = 0; s < streams.size(); ++s) {
    for (std::size_t i = 0; i < streams[s].indices.size(); ++i) {
      const std::uint64_t index = streams[s].indices[i];
      if (index > static_cast<Index>(~Index{0})) break;
      indices[s].push_back(static_cast<Index>(index));
      const auto value = static_cast<std::int32_t>(streams[s].values[i]);
      const auto [at, fresh] = expected.emplace(static_cast<Index>(index), value);
      if (fresh) continue;
      if (op == Op::sum) {
        at->second = static_cast<std::int32_t>(static_cast<std::uint32_t>(at->second) + streams[s].values[i]);
      } else {
        at->second = op == Op::min ? std::min(at->second, value) : std::max(at->second, value);
      }
    }
    views.push_back({UINT64_MAX, indices[s].size(), sizeof(Index) == 4 ? IndexType::u32 : IndexType::u64,
                     DType::i32, indices[s].data(), streams[s].values.data()});
    room += indices[s].size();
  }
  std::vector<Index> found(room);
  std::vector<std::int32_t> values(room);
  const std::size_t count = fold_sparse(views, op, found.data(), values.data());
  if (count != expected.size()) std::abort();
  std::size_t i = 0;
  for (const auto& [index, value] : expected) {
    if (found[i] != index || values[i] != value) std::abort();
    ++i;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heddle;
  if (size < 1) return 0;
  const std::uint8_t kind = *data++;
  std::size_t left = size - 1;
  std::vector<Stream> streams;
  while (left >= 3)
    streams.push_back(read_stream(data, left));
  const Op op = kind % 4 == 2 ? Op::min : kind % 4 == 3 ? Op::max : Op::sum;
  if ((kind & 4) != 0) {
    check<std::uint32_t>(streams, op);
  } else {
    check<std::uint64_t>(streams, op);
  }
  return 0;
}
