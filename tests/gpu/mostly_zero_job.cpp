// An MPI program on several hosts whose sums are mostly zeros, in GPU memory on some ranks or on all: results
// against the host MPI's. That no vector went to the host, and who summed, shows in the calls and bytes that
// the double of CUDA's driver counts. Arguments: the driver's library, what to do.
#include <optional>
#include <string>

#include "sums_job.hpp"

namespace {

using heddle::test::Buffer;
using heddle::test::Bytes;
using heddle::test::Job;
using heddle::test::kMemories;
using heddle::test::Memory;
using heddle::test::memory_name;
using heddle::test::now;
using heddle::test::Traffic;
using heddle::test::Where;

constexpr std::size_t kLarge = 600'001;  // floats, 2.3 MiB
constexpr double kFew = 0.0005;

// ---- Vectors

struct Type {
  const char* name;
  MPI_Datatype type;
  std::size_t size;
};
const Type kTypes[] = {
    {"float", MPI_FLOAT, 4}, {"double", MPI_DOUBLE, 8}, {"int", MPI_INT, 4}, {"long", MPI_LONG, 8}};

template <typename T>
void put(unsigned char* to, int value) {
  const T as = static_cast<T>(value);
  std::memcpy(to, &as, sizeof as);
}

// Small whole numbers, whose sums are exact in every order.
Bytes vector_of(const Type& type, std::size_t count, double density, std::uint64_t seed) {
  Bytes bytes(count * type.size);
  job::Random random(seed);
  const auto bound = static_cast<std::uint64_t>(density * 1e6);
  for (std::size_t i = 0; i < count; ++i) {
    if (random.below(1'000'000) >= bound) continue;
    const int value = static_cast<int>(random.below(2000)) - 1000;
    unsigned char* const at = &bytes[i * type.size];
    if (type.type == MPI_FLOAT) put<float>(at, value);
    if (type.type == MPI_DOUBLE) put<double>(at, value);
    if (type.type == MPI_INT) put<int>(at, value);
    if (type.type == MPI_LONG) put<long>(at, value);
  }
  return bytes;
}

// One of the driver's calls in a sum, on the last rank.
struct Fault {
  const char* name;
  int after;      // so many others
  int calls = 0;  // that there were
};

int call_failing(const Job& job, Fault* fault, const void* in, void* out, int count, MPI_Datatype type,
                 MPI_Comm comm) {
  if (fault == nullptr || !job.last()) return MPI_Allreduce(in, out, count, type, MPI_SUM, comm);
  const int before = job.calls(fault->name);
  job.driver->fail_after(fault->name, fault->after, CUDA_ERROR_LAUNCH_FAILED);
  const int rc = MPI_Allreduce(in, out, count, type, MPI_SUM, comm);
  job.driver->fail_no_more(fault->name);
  fault->calls = job.calls(fault->name) - before;
  return rc;
}

// A sum that must succeed, be right, and leave its input alone.
Traffic sum(const Job& job, MPI_Comm comm, const Type& type, std::size_t count, double density,
            const Where& where, Fault* fault = nullptr) {
  static std::uint64_t turn = 0;
  ++turn;
  const Bytes mine = vector_of(type, count, density, 1000 * turn + static_cast<std::uint64_t>(job.rank));
  const auto number = static_cast<int>(count);
  Bytes wanted(mine.size());
  PMPI_Allreduce(mine.data(), wanted.data(), number, type.type, MPI_SUM, MPI_COMM_WORLD);
  std::optional<Buffer> in;
  if (!where.in_place) in.emplace(job, where.in, where.in_device, mine, where.shift);
  Buffer out(job, where.out, where.out_device, where.in_place ? mine : Bytes(mine.size(), 0x5a), where.shift);
  const Traffic before = now(job);
  const int rc =
      call_failing(job, fault, in ? in->data() : MPI_IN_PLACE, out.data(), number, type.type, comm);
  const Traffic after = now(job);
  const bool kept = !in || in->content() == mine;
  if (rc != MPI_SUCCESS || out.content() != wanted || !kept)
    job::fail("sum %d, %zu %s of density %g, %s of %s and %s%s%s: %s", static_cast<int>(turn), count,
              type.name, density, where.in_place ? "in place" : "apart", memory_name(where.in),
              memory_name(where.out), fault != nullptr ? ", failing " : "",
              fault != nullptr ? fault->name : "",
              rc != MPI_SUCCESS ? "error"
              : kept            ? "wrong"
                                : "the input has changed");
  return {after.looks - before.looks, after.kernels - before.kernels, after.nodes - before.nodes,
          after.to_host - before.to_host, after.to_gpu - before.to_gpu};
}

// Whether the entries went by the GPU; the same on all ranks that have one.
bool by_entries(const Job& job, const Traffic& traffic, std::size_t bytes) {
  const bool few = traffic.to_host < bytes / 8 && traffic.to_gpu < bytes / 8;
  const bool by_gpu = traffic.looks == 1 && traffic.kernels > 0 && traffic.nodes == 0 && few;
  const int mine = by_gpu || !job.driver ? 1 : 0;
  int least = 0;
  int most = 0;
  PMPI_Allreduce(&mine, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  PMPI_Allreduce(&mine, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (least != most)
    job::fail("by entries on some ranks; here %s of %d", mine != 0 ? "too," : "not,", job.size);
  return mine != 0;
}

// ---- What to do

// Every rank another kind of memory, another device, in every call; `everywhere`: a GPU's on all.
void conform(const Job& job, bool everywhere) {
  // heddle takes it over in one of these.
  MPI_Comm fresh;
  MPI_Comm_dup(MPI_COMM_WORLD, &fresh);
  for (int call = 0; call < 6; ++call)
    sum(job, fresh, kTypes[0], kLarge / 2, call % 2 == 0 ? kFew : 1.0, Where{});
  MPI_Comm_free(&fresh);
  constexpr std::size_t kCounts[] = {10'000, 30'000, 150'001, 300'001};
  std::size_t turn = 0;
  for (int round = 0; round < 2; ++round) {
    for (const Type& type : kTypes) {
      for (const std::size_t count : kCounts) {
        for (const double density : {0.0, 0.001, 1.0}) {
          const std::size_t own = ++turn + static_cast<std::size_t>(job.rank);
          Where where;
          where.in = everywhere ? kMemories[2 + own % 4] : kMemories[own % 6];
          where.out = everywhere ? kMemories[2 + turn % 4] : kMemories[(2 * own + turn / 6) % 6];
          where.in_device = everywhere ? 0 : static_cast<int>(own % 2);
          where.out_device = everywhere ? 0 : static_cast<int>(turn % 2);
          where.in_place = turn % 3 == 0;
          // One rank's are not aligned.
          if (job.last() && turn % 5 == 0) where.shift = 2;
          sum(job, MPI_COMM_WORLD, type, count, density, where);
        }
      }
    }
  }
}

// Samples and entries are all that crosses the bus, in place or not, on one device or two, and on the ranks
// that have GPU memory where others have the host's.
void bytes(const Job& job) {
  const std::size_t most =
      20'000 + static_cast<std::size_t>(kFew * 2 * 16 * kLarge) * static_cast<std::size_t>(job.size);
  for (int turn = 0; turn < 12; ++turn) {
    Where where;
    where.in_place = turn % 2 == 0;
    where.out_device = turn % 4 == 1 ? 1 : 0;
    const bool mixed = turn >= 6 && job.rank == turn % job.size;
    if (mixed) (turn % 3 == 0 ? where.in : where.out) = Memory::host;
    if (mixed && where.in_place) where.out = Memory::host;
    const bool looks_there = (where.in_place ? where.out : where.in) == Memory::device;
    const Traffic traffic = sum(job, MPI_COMM_WORLD, kTypes[0], kLarge, kFew, where);
    if (traffic.to_host > most || traffic.to_gpu > most || traffic.looks != (looks_there ? 1 : 0))
      job::fail(
          "sum %d: %d looks, %zu bytes to the host, %zu to the GPU, of a vector of %zu, and %zu at most",
          turn, traffic.looks, traffic.to_host, traffic.to_gpu, kLarge * 4, most);
    if (traffic.kernels == 0 && !mixed) job::fail("sum %d: no kernel", turn);
  }
}

// Once the GPUs of each node fold large sums first, those of mostly zeros are found all the same; looks are
// few while there are none.
void nodes(const Job& job) {
  const auto one = [&](double density) {
    return sum(job, MPI_COMM_WORLD, kTypes[0], kLarge, density, Where{});
  };
  int served = 0;
  for (int call = 1; call <= 12; ++call)
    served += one(1.0).nodes > 0 ? 1 : 0;
  if (served != 4) job::fail("the GPUs of the nodes served %d of 12 sums, not the last 4", served);
  int until = 0;
  while (!by_entries(job, one(kFew), kLarge * 4)) {
    if (++until > 20) job::fail("%d sums of mostly zeros, and none was found", until);
  }
  for (int call = 0; call < 10; ++call) {
    if (!by_entries(job, one(kFew), kLarge * 4)) job::fail("call %d after one by entries is none", call);
  }
  // One rank has host memory: no vector is on any other one's way.
  Where where;
  if (job.rank == 1) where.in = where.out = Memory::host;
  const Traffic mixed = sum(job, MPI_COMM_WORLD, kTypes[0], kLarge, kFew, where);
  if (mixed.nodes > 0 || mixed.to_host > kLarge) job::fail("a mixed call did not go by entries");
  int looks = 0;
  for (int call = 0; call < 40; ++call) {
    const Traffic traffic = one(1.0);
    if (traffic.nodes == 0) job::fail("full vector %d is not for the GPUs of the nodes", call);
    // What is looked at goes on to them, and nothing else was done for it.
    if (traffic.looks > 1) job::fail("%d looks in one call", traffic.looks);
    looks += traffic.looks;
  }
  if (looks < 2 || looks > 6) job::fail("%d looks at 40 full vectors", looks);
}

void expect(const char* what, int rc, int wanted) {
  int error_class = MPI_SUCCESS;
  PMPI_Error_class(rc, &error_class);
  if (error_class != wanted) job::fail("%s: class %d instead of %d", what, error_class, wanted);
}

// Whatever fails once on the last rank, every result is right.
void each_step_fails(const Job& job, MPI_Comm comm, bool in_place) {
  Where where;
  where.in_place = in_place;
  for (const char* name :
       {"cuLaunchKernel", "cuMemsetD8Async", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuMemcpy2DAsync",
        "cuStreamSynchronize", "cuEventRecord", "cuStreamWaitEvent", "cuMemAlloc"}) {
    for (int after = 0;; after += 1 + after / 4) {
      Fault fault{name, after};
      sum(job, comm, kTypes[0], kLarge / 2, kFew, where, &fault);
      PMPI_Bcast(&fault.calls, 1, MPI_INT, job.size - 1, MPI_COMM_WORLD);
      if (fault.calls <= after) break;
    }
  }
}

// A sum in which the last rank cannot do its part; then the next one is right.
template <typename Prepare>
void fails(const Job& job, MPI_Comm comm, const char* what, int wanted, int others, Prepare prepare) {
  const Bytes mine = vector_of(kTypes[0], kLarge, kFew, static_cast<std::uint64_t>(job.rank));
  Buffer in(job, Memory::device, 0, mine);
  Buffer out(job, Memory::device, 0, mine);
  void* from = in.data();
  if (job.last()) from = prepare(in);
  expect(what, MPI_Allreduce(from, out.data(), static_cast<int>(kLarge), MPI_FLOAT, MPI_SUM, comm),
         job.last() ? wanted : others);
  if (job.last()) {
    for (const char* name : {"cuMemcpy2DAsync", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuLaunchKernel"})
      job.driver->fail_no_more(name);
  }
  for (int call = 0; call < 2; ++call) {
    if (!by_entries(job, sum(job, comm, kTypes[0], kLarge, kFew, Where{}), kLarge * 4))
      job::fail("after %s: not by entries", what);
  }
}

// The first rank has no CUDA, and hears of the last one's failures all the same.
void failures(const Job& job) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  job::warm_up(comm);
  each_step_fails(job, comm, true);
  each_step_fails(job, comm, false);
  fails(job, comm, "freed memory", MPI_ERR_BUFFER, MPI_ERR_OTHER, [](Buffer& in) { return in.lose(); });
  fails(job, comm, "a look, by an image too", MPI_ERR_OTHER, MPI_ERR_OTHER, [&](Buffer& in) {
    job.fail("cuMemcpy2DAsync", 1);
    job.fail("cuMemcpyDtoHAsync", 1);
    return in.data();
  });
  fails(job, comm, "entries, by an image too", MPI_ERR_OTHER, MPI_ERR_OTHER, [&](Buffer& in) {
    job.fail("cuLaunchKernel", 1);
    job.fail("cuMemcpyDtoHAsync", 1);
    return in.data();
  });
  // The others have their results.
  fails(job, comm, "a result, by an image too", MPI_ERR_OTHER, MPI_SUCCESS, [&](Buffer& in) {
    job.fail("cuMemcpyHtoDAsync", 2);
    return in.data();
  });
  MPI_Comm_free(&comm);
}

// The first rank has so many communicators of its own that it finds the common one no more at the first place
// it looks: it goes with the others all the same.
void displaced(const Job& job) {
  const auto one = [&](double density) {
    return sum(job, MPI_COMM_WORLD, kTypes[0], kLarge, density, Where{});
  };
  for (int call = 0; call < 10; ++call)
    one(1.0);
  std::vector<MPI_Comm> own(job.rank == 0 ? 1500 : 0);
  const auto displace = [&] {
    for (MPI_Comm& comm : own) {
      int mine = 1;
      int got = 0;
      MPI_Allreduce(&mine, &got, 1, MPI_INT, MPI_SUM, comm);
    }
  };
  for (MPI_Comm& comm : own)
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
  displace();
  if (one(1.0).nodes == 0) job::fail("a displaced communicator is not for the GPUs of the nodes");
  for (int call = 0; call < 8; ++call) {
    displace();
    one(kFew);
  }
  displace();
  if (!by_entries(job, one(kFew), kLarge * 4)) job::fail("a displaced communicator's entries");
  for (MPI_Comm& comm : own)
    MPI_Comm_free(&comm);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc < 3) job::fail("arguments: library, what to do");
  job::warm_up(MPI_COMM_WORLD);
  {
    const std::string what = argv[2];
    const bool bare = (what == "bare" || what == "failures") && job::rank_of(MPI_COMM_WORLD) == 0;
    const Job job(bare ? nullptr : argv[1]);
    if (what == "conform" || what == "bare") conform(job, false);
    if (what == "everywhere") conform(job, true);
    if (what == "bytes") bytes(job);
    if (what == "nodes") nodes(job);
    if (what == "failures") failures(job);
    if (what == "displaced") displaced(job);
  }
  MPI_Finalize();
  return 0;
}
