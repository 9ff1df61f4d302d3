// Allreduces, of sparse vectors and through codecs too, and bcasts of buffers on one GPU among ranks that are
// processes, and ranks that are threads, against folds on the host bit for bit; as a plain program:
// node_check LIBCUDA [--short]. The tests on the double of CUDA's driver look closer (node_test.cpp,
// node_job.cpp); this one runs on CUDA's as well, and there says whether what they rest on is so.
#include <cstdio>
#include <random>
#include <vector>

#include "fold_data.hpp"
#include "host_fold.hpp"
#include "node_ranks.hpp"
#include "node_sparse_check.hpp"

namespace heddle::test {
namespace {

constexpr std::size_t kScratch = std::size_t{1} << 20;
constexpr std::size_t kRoom = std::size_t{4} << 20;

struct Case {
  DType type;
  Op op;
  std::size_t count;
  std::size_t in_at;
  std::size_t out_at;
  bool in_place;
};

// The same on every rank, which knows what the others gave.
Bytes given_by(int rank, const Case& c) {
  std::mt19937_64 random(c.count + 1000U * static_cast<unsigned>(rank));
  return calm_elements(c.type, c.count, random);
}

bool check_sum(NodeRank& rank, const TestMemory& in, const TestMemory& out, const Case& c) {
  std::vector<Bytes> all;
  std::vector<const void*> inputs;
  for (int r = 0; r < rank.size(); ++r)
    all.push_back(given_by(r, c));
  for (const Bytes& one : all)
    inputs.push_back(one.data());
  const std::size_t bytes = c.count * dtype_size(c.type);
  Bytes wanted(bytes + 1);
  host_fold(c.type, c.op, wanted.data(), inputs, c.count);
  const TestMemory& from = c.in_place ? out : in;
  const std::size_t from_at = c.in_place ? c.out_at : c.in_at;
  from.put(all[static_cast<std::size_t>(rank.rank())].data(), bytes, from_at);
  const Result<bool> served =
      rank.path().allreduce(from.as<char>() + from_at, out.as<char>() + c.out_at, c.count, c.type, c.op);
  Bytes got(bytes + 1);
  out.get(got.data(), bytes, c.out_at);
  const bool same =
      served.ok() && served.value() && same_elements(c.type, got.data(), wanted.data(), c.count, false);
  if (!same)
    std::printf("  wrong: rank %d of %d, %s of %zu %s at %zu and %zu%s: %s\n", rank.rank(), rank.size(),
                op_name(c.op), c.count, dtype_name(c.type), c.in_at, c.out_at, c.in_place ? " in place" : "",
                !served.ok()      ? served.status().message().c_str()
                : !served.value() ? "not by the GPU"
                                  : "other bits");
  return same;
}

bool check_bcast(NodeRank& rank, const TestMemory& buffer, std::size_t bytes) {
  const int root = static_cast<int>(bytes) % rank.size();
  const Case c = {DType::u8, Op::sum, bytes, 0, 0, false};
  Bytes mine = given_by(rank.rank(), c);
  buffer.put(mine.data(), bytes, 3);
  const Result<bool> served = rank.path().bcast(buffer.as<char>() + 3, bytes, root);
  buffer.get(mine.data(), bytes, 3);
  const bool right = served.ok() && served.value() && mine == given_by(root, c);
  if (!right) std::printf("  wrong: rank %d, bcast of %zu bytes from %d\n", rank.rank(), bytes, root);
  return right;
}

// The input is written at the end of much work on a stream of the caller's, which synchronises with the
// default stream; nobody waits for it.
bool check_order(NodeRank& rank, const TestMemory& in, const TestMemory& out, std::size_t length) {
  const TestDriver& driver = rank.driver();
  const TestMemory busy(driver, Memory::device, 2 * length);
  CUstream stream = nullptr;
  driver.call<PFN_cuStreamCreate_v2000>("cuStreamCreate", &stream, 0U);
  const auto number = [](const void* at) { return reinterpret_cast<CUdeviceptr>(at); };
  const float old = -1;
  const float mine = static_cast<float>(rank.rank() + 1);
  in.put(&old, sizeof old);
  busy.put(&mine, sizeof mine);
  for (int i = 0; i < 100; ++i)
    driver.call<PFN_cuMemcpyDtoDAsync_v3020>("cuMemcpyDtoDAsync_v2", number(busy.as<char>() + length),
                                             number(busy.data()), length, stream);
  driver.call<PFN_cuMemcpyDtoDAsync_v3020>("cuMemcpyDtoDAsync_v2", number(in.data()), number(busy.data()),
                                           sizeof mine, stream);
  const Result<bool> served = rank.path().allreduce(in.data(), out.data(), 1, DType::f32, Op::sum);
  float sum = 0;
  out.get(&sum, sizeof sum);
  driver.call<PFN_cuStreamDestroy_v4000>("cuStreamDestroy_v2", stream);
  const auto ranks = static_cast<float>(rank.size());
  const float wanted = ranks * (ranks + 1) / 2;
  if (sum != wanted)
    std::printf("  wrong: rank %d: a call did not wait for the work before it: %g instead of %g\n",
                rank.rank(), static_cast<double>(sum), static_cast<double>(wanted));
  return served.ok() && sum == wanted;
}

// On a stream that does not synchronise with the default stream: work makes the input, much else before it;
// work takes the result, and then makes input and result other. Nobody waits before the end.
bool check_stream(NodeRank& rank, std::size_t count, bool brief) {
  const TestDriver& driver = rank.driver();
  const std::size_t bytes = count * sizeof(float);
  const TestMemory in(driver, Memory::device, bytes);
  const TestMemory out(driver, Memory::device, bytes);
  const TestMemory mine(driver, Memory::device, bytes);
  const TestMemory other(driver, Memory::device, bytes);
  const TestMemory taken[2] = {{driver, Memory::device, bytes}, {driver, Memory::device, bytes}};
  std::vector<float> values(count, static_cast<float>(rank.rank() + 1));
  mine.put(values.data(), bytes);
  CUstream stream = nullptr;
  driver.call<PFN_cuStreamCreate_v2000>("cuStreamCreate", &stream,
                                        static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  const auto copy = [&](const TestMemory& to, const TestMemory& from) {
    driver.call<PFN_cuMemcpyDtoDAsync_v3020>("cuMemcpyDtoDAsync_v2", reinterpret_cast<CUdeviceptr>(to.data()),
                                             reinterpret_cast<CUdeviceptr>(from.data()), bytes, stream);
  };
  Status status;
  for (int i = 0; i < 3 && status.ok(); ++i) {
    for (int busy = 0; busy < (brief ? 2 : 200 * (rank.rank() + 1)); ++busy)
      copy(out, other);
    copy(in, mine);
    status = rank.path().allreduce_on(rank.gpu(), stream, in.data(), out.data(), count, DType::f32, Op::sum);
    if (status.ok()) status = rank.path().bcast_on(rank.gpu(), stream, in.data(), bytes, i % rank.size());
    copy(taken[0], out);
    copy(taken[1], in);
    copy(in, other);
    copy(out, other);
  }
  driver.call<PFN_cuStreamSynchronize_v2000>("cuStreamSynchronize", stream);
  driver.call<PFN_cuStreamDestroy_v4000>("cuStreamDestroy_v2", stream);
  const float wanted[2] = {static_cast<float>(rank.size() * (rank.size() + 1)) / 2,
                           static_cast<float>(2 % rank.size() + 1)};
  std::size_t wrong = 0;
  for (int k = 0; k < 2; ++k) {
    taken[k].get(values.data(), bytes);
    for (const float value : values)
      wrong += value == wanted[k] ? 0 : 1;
  }
  if (!status.ok() || wrong != 0)
    std::printf("  wrong: rank %d of %d, %zu floats on a stream: %zu of them, %s\n", rank.rank(), rank.size(),
                count, wrong, status.message().c_str());
  return status.ok() && wrong == 0;
}

bool check_rank(NodeRank& rank, bool brief) {
  const TestMemory in(rank.driver(), Memory::device, kRoom);
  const TestMemory out(rank.driver(), Memory::device, kRoom);
  if (!rank.begin(out.as<float>())) return false;
  bool right = true;
  for (const DType type : {DType::i8, DType::u16, DType::i32, DType::i64, DType::f16, DType::bf16,
                           DType::e4m3, DType::e5m2, DType::f32, DType::f64}) {
    for (const Op op : {Op::sum, Op::prod, Op::min, Op::max})
      right = check_sum(rank, in, out, {type, op, 1037, 0, 0, op == Op::max}) && right;
  }
  for (const std::size_t count : {1, 2, 1000, 100'003, 700'001}) {
    right = check_sum(rank, in, out, {DType::f32, Op::sum, count, 0, 0, false}) && right;
    right = check_sum(rank, in, out, {DType::f32, Op::sum, count, 0, 8, true}) && right;
    right = check_sum(rank, in, out, {DType::f32, Op::sum, count, 4, 5, false}) && right;
    right = check_bcast(rank, in, count) && right;
  }
  right = check_order(rank, in, out, std::size_t{brief ? 1U : 32U} << 20) && right;
  for (const std::size_t count : {1, 100'003, 700'001})
    right = check_stream(rank, count, brief) && right;
  right = check_sparse(rank) && right;
  right = check_codes(rank) && right;
  // Not again: a rank that passes the host's memory, and all are told.
  float here = 1;
  const Result<bool> mixed = rank.path().allreduce(
      rank.rank() == 0 ? &here : in.data(), rank.rank() == 0 ? &here : out.data(), 1, DType::f32, Op::sum);
  if (!mixed.ok() || mixed.value()) std::printf("  wrong: rank %d: a call with host memory\n", rank.rank());
  return right && mixed.ok() && !mixed.value();
}

int run(const char* library, bool brief) {
  int wrong = 0;
  const auto check = [brief](NodeRank& rank) { return check_rank(rank, brief); };
  for (const int size : {2, 3}) {
    const bool processes = on_processes(library, size, kScratch, check);
    const bool threads = on_threads(library, size, kScratch, check);
    std::printf("%d processes: %s; %d threads: %s\n", size, processes ? "right" : "WRONG", size,
                threads ? "right" : "WRONG");
    wrong += (processes ? 0 : 1) + (threads ? 0 : 1);
  }
  if (!on_threads(library, 2, kScratch, check_overwritten_codes)) ++wrong;
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) {
  return heddle::test::run_check(argc, argv, heddle::test::run);
}
