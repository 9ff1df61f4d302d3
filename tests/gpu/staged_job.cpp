// An MPI program that passes buffers in memory of any kind, on each rank another, to the calls that heddle
// leaves to the host: results are the host MPI's, which it computes from copies in the host's memory.
// Arguments: the driver's library, what to do, a seed.
#include "staged_cases.hpp"
#include "staged_messages.hpp"
#include "staged_neighbours.hpp"
#include "staged_persistent.hpp"
#include "staged_requests.hpp"

namespace {

using gpu_job::expect;
using gpu_job::Job;
using gpu_job::Parts;
using gpu_job::Trial;
using heddle::test::Memory;
using heddle::test::TestDriver;
using heddle::test::TestMemory;

// The left operand's first and the right one's last: the order of ranks shows.
void first_and_last(void* in, void* inout, int* count, MPI_Datatype*) {
  for (int i = 0; i + 1 < *count; i += 2)
    static_cast<int*>(inout)[i] = static_cast<int*>(in)[i];
}

template <typename Calls>
void reductions(Trial<Calls>& trial, std::size_t count, MPI_Op op) {
  using Count = typename Calls::Count;
  const int size = trial.size();
  const auto n = static_cast<Count>(count);
  const auto all = count * static_cast<std::size_t>(size);
  const int any = trial.rank_of_all();
  for (const bool in_place : {false, true}) {
    // MPICH 4.0.2 dies of long sums in place on another root than 0.
    const int root = in_place ? 0 : any;
    const bool mine = in_place && trial.rank() == root;
    trial.run("reduce", count, count, mine, [&](const Calls& by, const void* in, void* out) {
      return by.Reduce(mine ? MPI_IN_PLACE : in, out, n, MPI_INT, op, root, trial.comm());
    });
    trial.run("scan", count, count, in_place, [&](const Calls& by, const void* in, void* out) {
      return by.Scan(in_place ? MPI_IN_PLACE : in, out, n, MPI_INT, op, trial.comm());
    });
    trial.run("exscan", count, count, in_place, [&](const Calls& by, const void* in, void* out) {
      return by.Exscan(in_place ? MPI_IN_PLACE : in, out, n, MPI_INT, op, trial.comm());
    });
    trial.run("reduce_scatter_block", all, in_place ? all : count, in_place,
              [&](const Calls& by, const void* in, void* out) {
                return by.Reduce_scatter_block(in_place ? MPI_IN_PLACE : in, out, n, MPI_INT, op,
                                               trial.comm());
              });
  }
}

// To one rank and from it. `type` is of two ints and a gap, or MPI_INT; `width` is its extent in ints.
template <typename Calls>
void rooted(Trial<Calls>& trial, std::size_t count, MPI_Datatype type, std::size_t width) {
  using Count = typename Calls::Count;
  const auto n = static_cast<Count>(count);
  const std::size_t own = count * width;
  const std::size_t all = own * static_cast<std::size_t>(trial.size());
  const int root = trial.rank_of_all();
  const bool is_root = trial.rank() == root;
  for (const bool in_place : {false, true}) {
    const bool mine = in_place && is_root;
    trial.run("gather", own, is_root ? all : 0, mine, [&](const Calls& by, const void* in, void* out) {
      return by.Gather(mine ? MPI_IN_PLACE : in, n, type, out, n, type, root, trial.comm());
    });
    trial.run("scatter", is_root ? all : 0, own, mine, [&](const Calls& by, const void* in, void* out) {
      return by.Scatter(in, n, type, mine ? MPI_IN_PLACE : out, n, type, root, trial.comm());
    });
  }
}

template <typename Calls>
void among_all(Trial<Calls>& trial, std::size_t count, MPI_Datatype type, std::size_t width) {
  using Count = typename Calls::Count;
  const auto n = static_cast<Count>(count);
  const std::size_t own = count * width;
  const std::size_t all = own * static_cast<std::size_t>(trial.size());
  for (const bool in_place : {false, true}) {
    trial.run("allgather", own, all, in_place, [&](const Calls& by, const void* in, void* out) {
      return by.Allgather(in_place ? MPI_IN_PLACE : in, n, type, out, n, type, trial.comm());
    });
    trial.run("alltoall", all, all, in_place, [&](const Calls& by, const void* in, void* out) {
      return by.Alltoall(in_place ? MPI_IN_PLACE : in, n, type, out, n, type, trial.comm());
    });
  }
}

// In place and with a request MPI_Ialltoallw of MPICH 4.0.2 gives wrong data, and both of Open MPI 4.1.4
// hang, by themselves.
template <typename Calls>
bool is_left_out(bool in_place) {
  return in_place && Calls::kHasRequests;
}

// Those with counts in arrays.
template <typename Calls>
void of_parts(Trial<Calls>& trial, std::size_t count, MPI_Datatype type, std::size_t width) {
  using Count = typename Calls::Count;
  const int root = trial.rank_of_all();
  const bool is_root = trial.rank() == root;
  for (const bool in_place : {false, true}) {
    const bool mine = in_place && is_root;
    const Parts<Calls> parts = trial.parts(count);
    const std::size_t span = parts.span() * width;
    const auto part = static_cast<Count>(parts.of(trial.rank()));
    const std::size_t ints = parts.of(trial.rank()) * width;
    trial.run("gatherv", ints, is_root ? span : 0, mine, [&](const Calls& by, const void* in, void* out) {
      return by.Gatherv(mine ? MPI_IN_PLACE : in, part, type, out, is_root ? parts.counts.data() : nullptr,
                        is_root ? parts.places.data() : nullptr, type, root, trial.comm());
    });
    trial.run("scatterv", is_root ? span : 0, ints, mine, [&](const Calls& by, const void* in, void* out) {
      return by.Scatterv(in, is_root ? parts.counts.data() : nullptr, is_root ? parts.places.data() : nullptr,
                         type, mine ? MPI_IN_PLACE : out, part, type, root, trial.comm());
    });
  }
  for (const bool in_place : {false, true}) {
    const Parts<Calls> parts = trial.parts(count);
    const auto part = static_cast<Count>(parts.of(trial.rank()));
    trial.run("allgatherv", parts.of(trial.rank()) * width, parts.span() * width, in_place,
              [&](const Calls& by, const void* in, void* out) {
                return by.Allgatherv(in_place ? MPI_IN_PLACE : in, part, type, out, parts.counts.data(),
                                     parts.places.data(), type, trial.comm());
              });
    // Each pair of ranks has as many in both directions, which in place asks for.
    const Parts<Calls> pairs = trial.pairs(count);
    if (is_left_out<Calls>(in_place)) continue;
    trial.run("alltoallv", pairs.span() * width, pairs.span() * width, in_place,
              [&](const Calls& by, const void* in, void* out) {
                return by.Alltoallv(in_place ? MPI_IN_PLACE : in, in_place ? nullptr : pairs.counts.data(),
                                    in_place ? nullptr : pairs.places.data(), type, out, pairs.counts.data(),
                                    pairs.places.data(), type, trial.comm());
              });
  }
}

template <typename Calls>
void reduce_scatter(Trial<Calls>& trial, std::size_t count, MPI_Op op) {
  for (const bool in_place : {false, true}) {
    const Parts<Calls> parts = trial.parts(count);
    const std::size_t total = parts.total();
    trial.run("reduce_scatter", total, in_place ? total : parts.of(trial.rank()), in_place,
              [&](const Calls& by, const void* in, void* out) {
                return by.Reduce_scatter(in_place ? MPI_IN_PLACE : in, out, parts.counts.data(), MPI_INT, op,
                                         trial.comm());
              });
  }
}

// Ints for even ranks, pairs with a gap for odd ones.
template <typename Calls>
void alltoallw(Trial<Calls>& trial, std::size_t count, MPI_Datatype gapped, std::size_t width) {
  Parts<Calls> pairs = trial.pairs(count);
  std::vector<MPI_Datatype> types;
  std::size_t end = 0;
  for (int i = 0; i < trial.size(); ++i) {
    const bool plain = (trial.rank() + i) % 2 == 0;
    types.push_back(plain ? MPI_INT : gapped);
    pairs.places[static_cast<std::size_t>(i)] = static_cast<typename Calls::Place>(4 * end);
    end += pairs.of(i) * (plain ? 1 : width) + 3;
  }
  for (const bool in_place : {false, true}) {
    if (is_left_out<Calls>(in_place)) continue;
    trial.run("alltoallw", end, end, in_place, [&](const Calls& by, const void* in, void* out) {
      return by.Alltoallw(in_place ? MPI_IN_PLACE : in, in_place ? nullptr : pairs.counts.data(),
                          in_place ? nullptr : pairs.places.data(), in_place ? nullptr : types.data(), out,
                          pairs.counts.data(), pairs.places.data(), types.data(), trial.comm());
    });
  }
}

// Sums and bcasts with requests.
template <typename Calls>
void sums_and_bcasts(Job& job, std::size_t count) {
  Trial<Calls> trial(job, MPI_COMM_WORLD, "world");
  const auto n = static_cast<typename Calls::Count>(count);
  for (const bool in_place : {false, true}) {
    trial.run("allreduce", count, count, in_place, [&](const Calls& by, const void* in, void* out) {
      return by.Allreduce(in_place ? MPI_IN_PLACE : in, out, n, MPI_INT, MPI_SUM, trial.comm());
    });
    const int root = trial.rank_of_all();
    trial.run("bcast", 0, count, true, [&](const Calls& by, const void*, void* data) {
      return by.Bcast(data, n, MPI_INT, root, trial.comm());
    });
  }
}

// What does not count on a rank leads nowhere there, and nobody minds.
template <typename Calls>
void nothing(Job& job, Trial<Calls>& trial) {
  TestMemory lost(job.driver, Memory::device, 100, 0);
  void* const nowhere = lost.lose();
  const TestMemory mine(job.driver, Memory::device, 4, 0);
  const int one = 1;
  mine.put(&one, sizeof one);
  const bool is_root = trial.rank() == 0;
  std::vector<int> all(static_cast<std::size_t>(trial.size()), 2);
  int next = 0;
  const Calls& by = Calls::kMpi;
  const MPI_Comm comm = trial.comm();
  expect("a receive from nobody", by.Recv(nowhere, 5, MPI_INT, MPI_PROC_NULL, 0, comm, MPI_STATUS_IGNORE), 0);
  expect("a send to nobody", by.Send(nowhere, 5, MPI_INT, MPI_PROC_NULL, 0, comm), 0);
  expect("an empty gather", by.Gather(nullptr, 0, MPI_INT, nullptr, 0, MPI_INT, 0, comm), 0);
  expect("a gather", by.Gather(mine.data(), 1, MPI_INT, is_root ? all.data() : nowhere, 1, MPI_INT, 0, comm),
         0);
  if (is_root && all != std::vector<int>(all.size(), 1)) job::fail("a gather from GPUs");
  expect("a scatter",
         by.Scatter(is_root ? all.data() : nowhere, 1, MPI_INT, mine.data(), 1, MPI_INT, 0, comm), 0);
  expect("a reduce", by.Reduce(mine.data(), is_root ? all.data() : nowhere, 1, MPI_INT, MPI_SUM, 0, comm), 0);
  expect("an exscan", by.Exscan(mine.data(), is_root ? nowhere : &next, 1, MPI_INT, MPI_SUM, comm), 0);
  if (!is_root && next != trial.rank()) job::fail("an exscan from GPUs: %d", next);
}

template <typename Calls>
void conform(Job& job, MPI_Comm comm, const char* where) {
  Trial<Calls> trial(job, comm, where);
  MPI_Datatype pair;
  MPI_Datatype gapped;
  MPI_Type_vector(2, 1, 2, MPI_INT, &pair);
  MPI_Type_create_resized(pair, 0, 16, &gapped);
  MPI_Type_commit(&gapped);
  MPI_Op op;
  MPI_Op_create(first_and_last, 0, &op);
  std::vector<char> attached(2'000'000);
  MPI_Buffer_attach(attached.data(), static_cast<int>(attached.size()));
  for (const std::size_t count : {1, 1000, 20'002}) {
    reductions(trial, count, MPI_SUM);
    reductions(trial, count, op);
    if constexpr (Calls::kHasArrays) {
      reduce_scatter(trial, count, MPI_SUM);
      reduce_scatter(trial, count, op);
      alltoallw(trial, count, gapped, 4);
    }
    for (const MPI_Datatype type : {MPI_INT, gapped}) {
      const std::size_t width = type == MPI_INT ? 1 : 4;
      rooted(trial, count, type, width);
      among_all(trial, count, type, width);
      if constexpr (Calls::kHasArrays) of_parts(trial, count, type, width);
      gpu_job::messages(trial, count, type, width);
    }
  }
  nothing(job, trial);
  void* buffer = nullptr;
  int bytes = 0;
  MPI_Buffer_detach(&buffer, &bytes);
  MPI_Op_free(&op);
  MPI_Type_free(&pair);
  MPI_Type_free(&gapped);
}

// Between the even ranks and the odd ones: a rank's data is for the others, and what is nobody's leads
// nowhere.
template <typename Calls>
void between_groups(Job& job) {
  if (job::size_of(MPI_COMM_WORLD) < 2) return;
  const int rank = job::rank_of(MPI_COMM_WORLD);
  MPI_Comm mine;
  MPI_Comm other;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &mine);
  MPI_Intercomm_create(mine, 0, MPI_COMM_WORLD, 1 - rank % 2, 1, &other);
  int others = 0;
  MPI_Comm_remote_size(other, &others);
  const bool is_even = rank % 2 == 0;
  const int root = !is_even ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
  constexpr std::size_t kCount = 300;
  const auto n = static_cast<typename Calls::Count>(kCount);
  const std::size_t all = kCount * static_cast<std::size_t>(others);
  const std::size_t at_root = root == MPI_ROOT ? 1 : 0;
  const std::size_t beside = is_even ? 0 : 1;
  Trial<Calls> trial(job, other, "between groups");
  trial.run("gather", kCount * beside, all * at_root, false, [&](const Calls& by, const void* in, void* out) {
    return by.Gather(in, n, MPI_INT, out, n, MPI_INT, root, other);
  });
  trial.run("scatter", all * at_root, kCount * beside, false,
            [&](const Calls& by, const void* in, void* out) {
              return by.Scatter(in, n, MPI_INT, out, n, MPI_INT, root, other);
            });
  trial.run("reduce", kCount * beside, kCount * at_root, false,
            [&](const Calls& by, const void* in, void* out) {
              return by.Reduce(in, out, n, MPI_INT, MPI_SUM, root, other);
            });
  trial.run("allgather", kCount, all, false, [&](const Calls& by, const void* in, void* out) {
    return by.Allgather(in, n, MPI_INT, out, n, MPI_INT, other);
  });
  trial.run("alltoall", all, all, false, [&](const Calls& by, const void* in, void* out) {
    return by.Alltoall(in, n, MPI_INT, out, n, MPI_INT, other);
  });
  MPI_Comm_free(&other);
  MPI_Comm_free(&mine);
}

template <typename Calls>
void conform(Job& job) {
  MPI_Comm reversed;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -job::rank_of(MPI_COMM_WORLD), &reversed);
  conform<Calls>(job, MPI_COMM_WORLD, "world");
  conform<Calls>(job, MPI_COMM_SELF, "self");
  conform<Calls>(job, reversed, "reversed");
  between_groups<Calls>(job);
  gpu_job::among_neighbours<Calls>(job);
  MPI_Comm_free(&reversed);
}

void copies_that_fail(Job& job, const TestMemory& small) {
  const int rank = job::rank_of(MPI_COMM_WORLD);
  int one = 1;
  job.driver.fail("cuMemcpyDtoHAsync", CUDA_ERROR_ILLEGAL_ADDRESS);
  expect("a copy that fails", MPI_Scan(small.data(), &one, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD),
         MPI_ERR_OTHER);
  job.driver.fail("cuMemcpyHtoDAsync", CUDA_ERROR_ILLEGAL_ADDRESS);
  expect("a copy back that fails", MPI_Scan(&one, small.data(), 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD),
         MPI_ERR_OTHER);
  MPI_Request request;
  MPI_Irecv(small.data(), 1, MPI_INT, rank, 5, MPI_COMM_WORLD, &request);
  PMPI_Send(&one, 1, MPI_INT, rank, 5, MPI_COMM_WORLD);
  job.driver.fail("cuMemcpyHtoDAsync", CUDA_ERROR_ILLEGAL_ADDRESS);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  expect("a copy back that fails at the end", MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_OTHER);
}

// Errors come to the user's error handler, name the call, and leave the communicator usable.
void bad(Job& job) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const int size = job::size_of(MPI_COMM_WORLD);
  TestMemory lost(job.driver, Memory::device, 100, 0);
  void* const address = lost.lose();
  std::vector<int> many(static_cast<std::size_t>(size));
  int one = 1;
  expect("freed input", MPI_Gather(address, 1, MPI_INT, many.data(), 1, MPI_INT, 0, MPI_COMM_WORLD),
         MPI_ERR_BUFFER);
  expect("freed output", MPI_Allgather(&one, 1, MPI_INT, address, 1, MPI_INT, MPI_COMM_WORLD),
         MPI_ERR_BUFFER);
  expect("freed message", MPI_Send(address, 1, MPI_INT, 0, 0, MPI_COMM_WORLD), MPI_ERR_BUFFER);
  const TestMemory small(job.driver, Memory::device, 100, 1);
  expect("longer than its memory",
         MPI_Alltoall(many.data(), 1, MPI_INT, small.data(), 100, MPI_INT, MPI_COMM_WORLD), MPI_ERR_BUFFER);
  expect("aliased", MPI_Scan(small.data(), small.data(), 10, MPI_INT, MPI_SUM, MPI_COMM_WORLD),
         MPI_ERR_BUFFER);
  if (job.driver.is_double()) copies_that_fail(job, small);
  // What the host has to say of arguments it says.
  expect("no such root", MPI_Gather(small.data(), 1, MPI_INT, many.data(), 1, MPI_INT, size, MPI_COMM_WORLD),
         MPI_ERR_ROOT);
  expect("no communicator", MPI_Scan(small.data(), many.data(), 1, MPI_INT, MPI_SUM, MPI_COMM_NULL),
         MPI_ERR_COMM);
  expect("no such rank", MPI_Send(small.data(), 1, MPI_INT, size, 0, MPI_COMM_WORLD), MPI_ERR_RANK);
  expect("no such count", MPI_Send(small.data(), -1, MPI_INT, 0, 0, MPI_COMM_WORLD), MPI_ERR_COUNT);
  TestMemory lost_too(job.driver, Memory::device, 100, 0);
  MPI_Request request;
  expect("freed message with a request",
         MPI_Isend(lost_too.lose(), 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &request), MPI_ERR_BUFFER);
  gpu_job::too_short(job);
  if (job.driver.is_double()) gpu_job::starts_that_fail(job);
  gpu_job::freed_and_too_short(job);
  conform<gpu_job::Calls>(job, MPI_COMM_WORLD, "world, after errors");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc < 3) job::fail("arguments: library, what to do, seed");
  job::warm_up(MPI_COMM_WORLD);
  const TestDriver driver(argv[1]);
  {
    Job job{driver, job::Random(argc > 3 ? static_cast<std::uint64_t>(std::atoll(argv[3])) : 1)};
    const std::string what = argv[2];
    if (what == "conform") {
      conform<gpu_job::Calls>(job);
      conform<gpu_job::RequestCalls>(job);
      sums_and_bcasts<gpu_job::RequestCalls>(job, 1000);
      gpu_job::several(job);
      gpu_job::columns(job);
      gpu_job::odd_types(job);
      gpu_job::at_once(job);
      gpu_job::freed_requests(job);
      gpu_job::structures(job);
      gpu_job::again_and_again(job);
      gpu_job::sums_again(job);
      gpu_job::freed_while_started(job);
    }
#if MPI_VERSION >= 4
    if (what == "conform") {
      conform<gpu_job::LargeCalls>(job);
      conform<gpu_job::LargeRequestCalls>(job);
      sums_and_bcasts<gpu_job::LargeRequestCalls>(job, 1000);
    }
#endif
#if defined(HEDDLE_TEST_PERSISTENT)
    if (what == "conform") {
      conform<gpu_job::PersistentCalls>(job);
      sums_and_bcasts<gpu_job::PersistentCalls>(job, 1000);
    }
#endif
    if (what == "bad") bad(job);
    if (what == "conform") gpu_job::in_finalize(job);
  }
  MPI_Finalize();
  return 0;
}
