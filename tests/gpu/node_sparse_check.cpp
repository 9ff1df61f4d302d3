#include "node_sparse_check.hpp"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "host_sparse.hpp"

namespace heddle::test {
namespace {

struct SparseSum {
  std::size_t dimension;
  std::size_t one_in;  // of its elements is an entry
  bool wide;
};

struct Given {
  std::vector<std::uint64_t> indices;
  std::vector<float> values;
};

// The same on every rank, which knows what the others gave.
Given given_by(int rank, const SparseSum& c) {
  std::mt19937_64 random(c.dimension + 1000U * static_cast<unsigned>(rank));
  Given given;
  for (std::size_t i = 0; i < c.dimension; ++i) {
    if (random() % c.one_in != 0) continue;
    given.indices.push_back(i);
    given.values.push_back(static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 7 + 0.1F);
  }
  return given;
}

// What all give: folded in the order of ranks, 0 where none has an entry.
struct Folded {
  std::vector<float> dense;
  std::vector<bool> is_there;
  std::size_t most = 0;  // entries of all ranks
};

Folded folded(const NodeRank& rank, const SparseSum& c, Op op) {
  Folded all{std::vector<float>(c.dimension), std::vector<bool>(c.dimension)};
  for (int r = 0; r < rank.size(); ++r) {
    const Given given = given_by(r, c);
    all.most += given.indices.size();
    for (std::size_t i = 0; i < given.indices.size(); ++i) {
      float& value = all.dense[given.indices[i]];
      const float next = given.values[i];
      const bool is_taken = !all.is_there[given.indices[i]] || (op == Op::min ? next < value : next > value);
      if (op == Op::sum) value += next;
      if (op != Op::sum && is_taken) value = next;
      all.is_there[given.indices[i]] = true;
    }
  }
  return all;
}

bool check_dense(NodeRank& rank, const SparseSum& c, Op op) {
  const std::vector<float> wanted = folded(rank, c, op).dense;
  const Given mine = given_by(rank.rank(), c);
  const std::size_t count = mine.indices.size();
  const TestMemory indices(rank.driver(), Memory::device, count * 8);
  const TestMemory values(rank.driver(), Memory::device, count * 4);
  const TestMemory dense(rank.driver(), Memory::device, c.dimension * 4);
  const std::vector<std::uint32_t> narrow(mine.indices.begin(), mine.indices.end());
  indices.put(c.wide ? static_cast<const void*>(mine.indices.data()) : narrow.data(),
              count * (c.wide ? 8 : 4));
  values.put(mine.values.data(), count * 4);
  const DeviceEntries job{
      {indices.data(), values.data(), count, c.wide}, DType::f32, op, dense.data(), c.dimension};
  DeviceTraffic traffic;
  Result<bool> served = rank.path().sparse_sum(job, c.dimension, &traffic);
  bool right = say(rank, op_name(op), c.dimension, served, holds(dense, wanted));
  // One rank breaks the contract: all are told, and nothing has happened.
  if (rank.rank() == 1) indices.put(mine.indices.data() + count - 1, c.wide ? 8 : 4);
  served = rank.path().sparse_sum(job, c.dimension, &traffic);
  if (!served.ok() || served.value() || !holds(dense, wanted)) {
    std::printf("  wrong: rank %d: broken entries\n", rank.rank());
    right = false;
  }
  return right;
}

// The same with a sparse result: straight to where it is to be, with too little room there, and over the
// input.
bool check_merge(NodeRank& rank, const SparseSum& c, Op op) {
  const Folded all = folded(rank, c, op);
  const std::size_t most = all.most;
  std::vector<std::uint64_t> wanted;
  std::vector<float> results;
  for (std::size_t i = 0; i < c.dimension; ++i) {
    if (!all.is_there[i]) continue;
    wanted.push_back(i);
    results.push_back(all.dense[i]);
  }
  const Given mine = given_by(rank.rank(), c);
  const std::size_t count = mine.indices.size();
  const std::size_t found = wanted.size();
  const std::size_t width = c.wide ? 8 : 4;
  const TestMemory indices(rank.driver(), Memory::device, most * width);
  const TestMemory values(rank.driver(), Memory::device, most * sizeof(float));
  const TestMemory out_indices(rank.driver(), Memory::device, most * width);
  const TestMemory out_values(rank.driver(), Memory::device, most * sizeof(float));
  const std::vector<std::uint32_t> narrow(mine.indices.begin(), mine.indices.end());
  const gpu::Entries in{indices.data(), values.data(), count, c.wide};
  const gpu::Room rooms[] = {{out_indices.data(), out_values.data(), most, c.wide},
                             {out_indices.data(), out_values.data(), found, c.wide},
                             {out_indices.data(), out_values.data(), found - 1, c.wide},
                             {indices.data(), values.data(), most, c.wide}};
  bool right = true;
  for (const gpu::Room& room : rooms) {
    indices.put(c.wide ? static_cast<const void*>(mine.indices.data()) : narrow.data(), count * width);
    values.put(mine.values.data(), count * sizeof(float));
    DeviceTraffic traffic;
    DeviceMerged merged;
    const Result<bool> served =
        rank.path().sparse_merge({in, DType::f32, op, c.dimension, room}, c.dimension, &traffic, &merged);
    bool same = served.ok() && served.value() && merged.entries.count == found &&
                merged.is_placed == (&room < rooms + 2);
    // To the same place from wherever it is; the last time over the input.
    const TestMemory& to_indices = merged.is_placed ? out_indices : indices;
    const TestMemory& to_values = merged.is_placed ? out_values : values;
    if (same && !merged.is_placed) {
      const Result<bool> one = rank.path().copy(indices.data(), merged.entries.indices, found * width);
      const Result<bool> two = rank.path().copy(values.data(), merged.entries.values, found * sizeof(float));
      same = one.ok() && one.value() && two.ok() && two.value();
    }
    std::vector<std::uint64_t> got(found);
    std::vector<std::uint32_t> got_narrow(found);
    to_indices.get(c.wide ? static_cast<void*>(got.data()) : got_narrow.data(), found * width);
    if (!c.wide) got.assign(got_narrow.begin(), got_narrow.end());
    right = say(rank, "a merge", c.dimension, served, same && got == wanted && holds(to_values, results)) &&
            right;
  }
  return right;
}

// One rank's step on the host.
void step_on_host(const std::vector<float>& gradient, std::size_t k, std::vector<float>* left_out,
                  std::vector<float>* sum) {
  for (std::size_t i = 0; i < gradient.size(); ++i)
    (*left_out)[i] = gradient[i] + (*left_out)[i];
  const HostEntries sent = host_top_k(left_out->data(), left_out->size(), k);
  for (std::size_t i = 0; i < sent.indices.size(); ++i) {
    float value = 0;
    std::memcpy(&value, &sent.values[i * sizeof value], sizeof value);
    (*sum)[sent.indices[i]] += value;
    (*left_out)[sent.indices[i]] = 0;
  }
  for (float& value : *left_out)
    value = std::isfinite(value) ? value : 0;
}

bool check_largest(NodeRank& rank, std::size_t n, std::size_t k) {
  const TestMemory both(rank.driver(), Memory::device, n * sizeof(float));
  PlacedResidual residual{Residual(n)};
  std::vector<std::vector<float>> left_out(static_cast<std::size_t>(rank.size()), std::vector<float>(n));
  bool right = true;
  for (int step = 0; step < 3; ++step) {
    std::vector<float> wanted(n);
    for (int r = 0; r < rank.size(); ++r)
      step_on_host(gradient_of(r, n, step), k, &left_out[static_cast<std::size_t>(r)], &wanted);
    both.put(gradient_of(rank.rank(), n, step).data(), n * sizeof(float));
    DeviceTraffic traffic;
    const Result<bool> served =
        rank.path().largest_sum({both.as<float>(), both.as<float>(), n, k, &residual}, k, &traffic);
    right = say(rank, "a sum of the largest", n, served, holds(both, wanted)) && right;
  }
  const Result<Residual*> values = residual.on_host();
  const std::vector<float>& mine = left_out[static_cast<std::size_t>(rank.rank())];
  const bool same =
      values.ok() && std::memcmp(values.value()->values().data(), mine.data(), n * sizeof(float)) == 0;
  if (!same) std::printf("  wrong: rank %d, what was left out of %zu values\n", rank.rank(), n);
  return right && same;
}

}  // namespace

bool say(const NodeRank& rank, const char* what, std::size_t n, const Result<bool>& served, bool same) {
  if (served.ok() && served.value() && same) return true;
  std::printf("  wrong: rank %d of %d, %s of %zu: %s\n", rank.rank(), rank.size(), what, n,
              !served.ok()      ? served.status().message().c_str()
              : !served.value() ? "not by the GPU"
                                : "other bits");
  return false;
}

bool holds(const TestMemory& memory, const std::vector<float>& wanted) {
  std::vector<float> got(wanted.size());
  memory.get(got.data(), got.size() * sizeof(float));
  return std::memcmp(got.data(), wanted.data(), got.size() * sizeof(float)) == 0;
}

std::vector<float> gradient_of(int rank, std::size_t n, int step) {
  std::mt19937 random(static_cast<unsigned>(n) + 77U * static_cast<unsigned>(rank) +
                      1000U * static_cast<unsigned>(step));
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values)
    value = normal(random);
  // More than are sent are not finite, in the second step.
  for (std::size_t i = 0; step == 1 && i < n; i += 50)
    values[i] = i % 100 == 0 ? INFINITY : NAN;
  return values;
}

bool check_sparse(NodeRank& rank) {
  bool right = true;
  // The last has more entries than the scratch has room for at once.
  for (const SparseSum& c :
       {SparseSum{1'000, 3, false}, SparseSum{100'003, 100, true}, SparseSum{120'001, 2, false}}) {
    for (const Op op : {Op::sum, Op::min, Op::max}) {
      right = check_dense(rank, c, op) && right;
      right = check_merge(rank, c, op) && right;
    }
  }
  for (const std::size_t n : {1'000, 100'003})
    right = check_largest(rank, n, n / 100) && right;
  return right;
}

}  // namespace heddle::test
