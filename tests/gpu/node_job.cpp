// An MPI program whose ranks, on one node, pass GPU memory in call after call until their GPUs serve the
// calls: results against the host MPI's, or bit for bit against heddle's own on host memory. That the GPUs
// did it shows in the calls that the double of CUDA's driver counts. Arguments: the driver's library, what to
// do, GPUs that the ranks share out. With CUDA's own driver `conform`.
#include "node_job.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

namespace {

using namespace node_job;

struct Type {
  const char* name;
  MPI_Datatype type;
  std::size_t size;
  char form;  // i: integer, f: floating point, c: complex, b: bytes, l: logical
};
struct Operation {
  const char* name;
  MPI_Op op;
  const char* forms;
};
const Operation kOperations[] = {{"sum", MPI_SUM, "ifc"},  {"prod", MPI_PROD, "ifc"}, {"min", MPI_MIN, "if"},
                                 {"max", MPI_MAX, "if"},   {"land", MPI_LAND, "il"},  {"lor", MPI_LOR, "il"},
                                 {"lxor", MPI_LXOR, "il"}, {"band", MPI_BAND, "ib"},  {"bor", MPI_BOR, "ib"},
                                 {"bxor", MPI_BXOR, "ib"}};

// Numbers whose sums round differently in every order.
Bytes values(const Type& type, std::size_t count, int rank) {
  Bytes bytes(type.size * count);
  job::Random random(1000 * count + static_cast<std::uint64_t>(rank));
  const auto number = [&] { return static_cast<double>(random.below(1'000'001)) / 7e5 - 0.7; };
  if (type.form == 'f' || type.form == 'c') {
    const bool single = type.size == (type.form == 'f' ? 4 : 8);
    const std::size_t part = single ? 4 : 8;
    for (std::size_t at = 0; at < bytes.size(); at += part) {
      const double wide = number();
      const auto narrow = static_cast<float>(wide);
      std::memcpy(&bytes[at], single ? static_cast<const void*>(&narrow) : &wide, part);
    }
  } else {
    for (unsigned char& byte : bytes)
      byte = static_cast<unsigned char>(type.form == 'l' ? random.below(2) : random.next());
  }
  return bytes;
}

struct Case {
  const Type& type;
  const Operation& operation;
  std::size_t count;
  std::size_t in_at;  // bytes from the beginning of the memory
  std::size_t out_at;
  bool in_place;
};

// By the GPUs, and then by the host: the same bits, and nothing beside them.
void compare(const Job& job, MPI_Comm comm, const Case& c) {
  constexpr unsigned char kMark = 0x5a;
  const Bytes mine = values(c.type, c.count, job.rank);
  Bytes wanted(mine.size() + 1);
  Bytes got(c.out_at + mine.size() + 64, kMark);
  job.out.put(got.data(), got.size());
  const TestMemory& from = c.in_place ? job.out : job.in;
  const std::size_t from_at = c.in_place ? c.out_at : c.in_at;
  from.put(mine.data(), mine.size(), from_at);

  const auto count = static_cast<int>(c.count);
  const int before = job.kernels();
  const int rc = MPI_Allreduce(c.in_place ? MPI_IN_PLACE : job.in.as<char>() + c.in_at,
                               job.out.as<char>() + c.out_at, count, c.type.type, c.operation.op, comm);
  const int kernels = job.kernels() - before;
  // The host's own reduction of the same; all ranks pass host memory.
  MPI_Allreduce(mine.data(), wanted.data(), count, c.type.type, c.operation.op, comm);
  job.out.get(got.data(), got.size());
  const bool right = rc == MPI_SUCCESS && std::memcmp(&got[c.out_at], wanted.data(), mine.size()) == 0;
  const auto is_mark = [](unsigned char byte) { return byte == kMark; };
  const bool clean = std::all_of(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(c.out_at), is_mark) &&
                     std::all_of(got.end() - 64, got.end(), is_mark);
  // Of a short vector shared out a rank may have nothing to fold.
  const bool by_gpu = !job.counts || (c.count == 0 ? kernels == 0 : kernels > 0);
  if (!right || !clean || !by_gpu)
    job::fail("%s of %zu %s, at %zu and %zu%s: %s, %d kernels", c.operation.name, c.count, c.type.name,
              c.in_at, c.out_at, c.in_place ? ", in place" : "",
              !right  ? "wrong"
              : clean ? "right"
                      : "memory beside the result has changed",
              kernels);
}

void bcast_once(const Job& job, MPI_Comm comm, std::size_t bytes, std::size_t at, int root) {
  const Type type = {"bytes", MPI_BYTE, 1, 'b'};
  Bytes mine = values(type, bytes, job.rank);
  const Bytes wanted = values(type, bytes, root);
  job.in.put(mine.data(), bytes, at);
  const int before = job.copies();
  if (MPI_Bcast(job.in.as<char>() + at, static_cast<int>(bytes), MPI_BYTE, root, comm) != MPI_SUCCESS)
    job::fail("bcast of %zu bytes: error", bytes);
  const int copies = job.copies() - before;
  job.in.get(mine.data(), bytes, at);
  if (mine != wanted || (job.counts && (copies > 0) != (bytes > 0)))
    job::fail("bcast of %zu bytes at %zu from %d: %s, %d copies", bytes, at, root,
              mine != wanted ? "wrong" : "right", copies);
}

void conform(const Job& job) {
  const Type types[] = {{"int8", MPI_SIGNED_CHAR, 1, 'i'},
                        {"uint16", MPI_UNSIGNED_SHORT, 2, 'i'},
                        {"int32", MPI_INT, 4, 'i'},
                        {"uint64", MPI_UNSIGNED_LONG, 8, 'i'},
                        {"uint8", MPI_UNSIGNED_CHAR, 1, 'i'},
                        {"int16", MPI_SHORT, 2, 'i'},
                        {"uint32", MPI_UNSIGNED, 4, 'i'},
                        {"int64", MPI_LONG, 8, 'i'},
                        {"float", MPI_FLOAT, 4, 'f'},
                        {"double", MPI_DOUBLE, 8, 'f'},
                        {"bytes", MPI_BYTE, 1, 'b'},
                        {"bool", MPI_C_BOOL, 1, 'l'},
                        {"complex", MPI_C_FLOAT_COMPLEX, 8, 'c'},
                        {"double complex", MPI_C_DOUBLE_COMPLEX, 16, 'c'}};
  MPI_Comm comm = worthwhile();
  const int took = begin(job, comm, 40);
  if (took > kSoon) job::fail("the GPUs began with call %d", took);
  std::size_t turn = 0;
  for (const Type& type : types) {
    for (const Operation& operation : kOperations) {
      if (std::strchr(operation.forms, type.form) == nullptr) continue;
      // heddle leaves to the host what that does otherwise (datatype_map.cpp), as the least of some unsigned
      // types by MPICH 4.0.
      if (type.name[0] == 'u' && (operation.op == MPI_MIN || operation.op == MPI_MAX)) continue;
      for (const std::size_t count : {1, 1037})
        compare(job, comm, {type, operation, count, 0, 0, ++turn % 2 == 0});
    }
  }
  // Longer than the scratch, by several pieces and an odd rest; as long as all of it, or a little longer;
  // short ones and those that three ranks share out.
  for (const Type& type : {types[8], types[0], types[13]}) {
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{48}, std::size_t{40'000}, std::size_t{65'536}, std::size_t{65'552},
          std::size_t{70'000}, std::size_t{600'000}, std::size_t{1'200'016}}) {
      const std::size_t count = bytes / type.size;
      compare(job, comm, {type, kOperations[0], count, 0, 0, false});
      compare(job, comm, {type, kOperations[0], count, 16, 16, true});
      // Not aligned to 16, nor to the elements.
      compare(job, comm, {type, kOperations[0], count, 24, 8, false});
      compare(job, comm, {type, kOperations[0], count, 3, 5 + static_cast<std::size_t>(job.rank), false});
    }
  }
  for (const std::size_t bytes : {0, 1, 1037, 40'000, 65'536, 65'537, 70'000, 1'200'001}) {
    for (int root = 0; root < job.size; ++root)
      bcast_once(job, comm, bytes, bytes % 7, root);
  }
  MPI_Comm_free(&comm);
}

// Some ranks pass host memory: that call is staged. After enough of them in a row the mode ends, and comes
// back.
void mixed(const Job& job) {
  MPI_Comm comm = worthwhile();
  begin(job, comm, 40);
  int misses = 0;
  const auto sum_of_mixed = [&](int host_rank) {
    const int mine = job.rank + 1;
    int sum = 0;
    job.in.put(&mine, sizeof mine);
    const int before = job.kernels();
    const bool host = job.rank == host_rank;
    const void* from = host ? static_cast<const void*>(&mine) : job.in.data();
    void* to = host ? static_cast<void*>(&sum) : job.out.data();
    if (MPI_Allreduce(from, to, 1, MPI_INT, MPI_SUM, comm) != MPI_SUCCESS) job::fail("mixed: error");
    if (!host) job.out.get(&sum, sizeof sum);
    if (sum != job.size * (job.size + 1) / 2) job::fail("mixed: %d", sum);
    if (job.kernels() != before) job::fail("mixed, and a kernel ran");
    ++misses;
  };
  for (int i = 0; i < 20; ++i) {
    sum_of_mixed(i % job.size);
    if (!sum_once(job, comm)) job::fail("after a mixed call the GPUs do not go on");
  }
  // Derived types: on one rank the bytes are in one piece, on the others they are not.
  MPI_Datatype vector;
  MPI_Type_vector(3, 1, 2, MPI_INT, &vector);
  MPI_Type_commit(&vector);
  const int ints[] = {job.rank + 1, job.rank + 2, job.rank + 3, job.rank + 4, job.rank + 5};
  job.in.put(ints, sizeof ints);
  if (job.rank == 0) {
    MPI_Bcast(job.in.data(), 3, MPI_INT, 0, comm);
  } else {
    MPI_Bcast(job.in.data(), 1, vector, 0, comm);
    int got[5];
    job.in.get(got, sizeof got);
    if (got[0] != 1 || got[2] != 2 || got[4] != 3 || got[1] != job.rank + 2) job::fail("a derived type");
  }
  MPI_Type_free(&vector);

  if (!sum_once(job, comm)) job::fail("after a derived type the GPUs do not go on");
  misses = 0;
  while (misses < 8)
    sum_of_mixed(misses % job.size);
  if (sum_once(job, comm)) job::fail("after %d mixed calls in a row the mode goes on", misses);
  const int took = begin(job, comm, 80);
  if (took <= 9 || took > 30) job::fail("the GPUs came back with call %d", took);
  MPI_Comm_free(&comm);
}

// HEDDLE_MEASURE: short sums go by what was faster when it was tried, and give what the host gives, whatever
// that was. In a communicator of its own each.
void tried(const Job& job, bool by_gpus) {
  for (int turn = 0; turn < 2; ++turn) {
    MPI_Comm comm = worthwhile();
    for (int i = 0; i < 40; ++i)
      sum_once(job, comm);
    for (int i = 0; i < 20; ++i) {
      // Not all ranks have to fold.
      const int before = job.kernels() + job.copies();
      sum_once(job, comm);
      if ((job.kernels() + job.copies() > before) != by_gpus) job::fail("sum %d went by the other way", i);
    }
    for (const std::size_t bytes : {1, 1037, 70'000}) {
      Bytes mine(bytes, static_cast<unsigned char>(job.rank + 1));
      job.in.put(mine.data(), bytes);
      const int copies = job.copies();
      if (MPI_Bcast(job.in.data(), static_cast<int>(bytes), MPI_BYTE, 1, comm) != MPI_SUCCESS)
        job::fail("bcast: error");
      if (by_gpus && job.copies() == copies) job::fail("a bcast of %zu bytes went by the host", bytes);
      job.in.get(mine.data(), bytes);
      if (mine != Bytes(bytes, 2)) job::fail("a bcast of %zu bytes", bytes);
    }
    MPI_Comm_free(&comm);
  }
}

// Several communicators at once, which end in any order, and with nothing else to do but bcasts.
void several(const Job& job) {
  MPI_Comm all[4];
  for (MPI_Comm& comm : all) {
    comm = worthwhile();
    begin(job, comm, 40);
  }
  MPI_Comm_free(&all[1]);
  if (!sum_once(job, all[0]) || !sum_once(job, all[2])) job::fail("after another communicator ended");
  MPI_Comm_free(&all[0]);
  if (!sum_once(job, all[3])) job::fail("after two others ended");
  MPI_Comm bcasts = worthwhile();
  int before = 0;
  for (int i = 0; i < 40; ++i) {
    before = job.copies();
    MPI_Bcast(job.in.data(), 100, MPI_BYTE, i % job.size, bcasts);
  }
  if (job.copies() == before) job::fail("forty bcasts, and no GPU has served one");
  // The rest is left to MPI_Finalize, which may come to them in any order.
}

// Ranks come to GPU memory one after the other, and to each call sooner or later: still all begin with the
// same call.
void staggered(const Job& job) {
  job::Random random(static_cast<std::uint64_t>(job.rank));
  for (int turn = 0; turn < 20; ++turn) {
    MPI_Comm comm = worthwhile();
    const int from = (job.rank + turn) % job.size * 3;
    for (int i = 0; i < 30; ++i) {
      if (random.below(4) == 0) std::this_thread::sleep_for(std::chrono::microseconds(random.below(300)));
      const int mine = job.rank + 1;
      int sum = 0;
      if (i < from) {
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm);
        if (sum != job.size * (job.size + 1) / 2) job::fail("before GPU memory: %d", sum);
      } else {
        sum_once(job, comm);
      }
    }
    if (!sum_once(job, comm)) job::fail("thirty calls, and no GPU has served one");
    MPI_Comm_free(&comm);
  }
}

// On several hosts: after eight large sums of GPU memory the GPUs of each fold first, and take part in
// bcasts.
void over_hosts(const Job& job) {
  constexpr std::size_t kCount = (kMost - 1000) / sizeof(int);
  std::vector<int> mine(kCount);
  int served = 0;
  for (int call = 1; call <= 12; ++call) {
    for (std::size_t i = 0; i < kCount; ++i)
      mine[i] = static_cast<int>(i) + call * (job.rank + 1);
    const bool in_place = call % 2 == 0;
    (in_place ? job.out : job.in).put(mine.data(), kCount * sizeof(int));
    const int before = job.calls("cuStreamQuery");
    if (MPI_Allreduce(in_place ? MPI_IN_PLACE : job.in.data(), job.out.data(), static_cast<int>(kCount),
                      MPI_INT, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS)
      job::fail("a large sum: error");
    served += job.calls("cuStreamQuery") > before ? 1 : 0;
    job.out.get(mine.data(), kCount * sizeof(int));
    for (std::size_t i = 0; i < kCount; ++i) {
      if (mine[i] != job.size * static_cast<int>(i) + call * job.size * (job.size + 1) / 2)
        job::fail("large sum %d: element %zu is %d", call, i, mine[i]);
    }
  }
  if (served != 4) job::fail("the GPUs served %d of 12 large sums, not the last 4", served);
  for (int root = 0; root < job.size; ++root) {
    for (std::size_t i = 0; i < kCount; ++i)
      mine[i] = static_cast<int>(i) * (job.rank + 1);
    job.out.put(mine.data(), kCount * sizeof(int));
    const int before = job.calls("cuStreamQuery");
    if (MPI_Bcast(job.out.data(), static_cast<int>(kCount), MPI_INT, root, MPI_COMM_WORLD) != MPI_SUCCESS)
      job::fail("a large bcast: error");
    if (job.calls("cuStreamQuery") == before) job::fail("the GPUs did not serve a large bcast from %d", root);
    job.out.get(mine.data(), kCount * sizeof(int));
    for (std::size_t i = 0; i < kCount; ++i) {
      if (mine[i] != static_cast<int>(i) * (root + 1))
        job::fail("large bcast from %d: element %zu is %d", root, i, mine[i]);
    }
  }
}

// Ranks that have no CUDA, or only host memory, are never asked for anything.
void never(const Job* job) {
  for (int i = 0; i < 40; ++i) {
    int mine = 1;
    int sum = 0;
    if (job != nullptr && i % 10 != 3) {
      job->in.put(&mine, sizeof mine);
      MPI_Allreduce(job->in.data(), job->out.data(), 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
      job->out.get(&sum, sizeof sum);
    } else {
      MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
    if (sum != job::size_of(MPI_COMM_WORLD)) job::fail("a sum beside a rank without CUDA: %d", sum);
  }
  if (job != nullptr && job->kernels() != 0) job::fail("a kernel ran");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc < 3) job::fail("arguments: library, what to do");
  job::warm_up(MPI_COMM_WORLD);
  {
    const std::string what = argv[2];
    std::optional<Job> job;
    if (what != "never" || job::rank_of(MPI_COMM_WORLD) != 0)
      job.emplace(argv[1], argc > 3 ? std::atoi(argv[3]) : 1);
    if (what == "conform") conform(*job);
    if (what == "mixed") mixed(*job);
    if (what == "slow-copies") tried(*job, true);
    if (what == "slow-kernels") tried(*job, false);
    if (what == "several") several(*job);
    if (what == "staggered") staggered(*job);
    if (what == "failures") failures(*job);
    if (what == "no-ipc") refused(*job, "cuIpcOpenMemHandle", CUDA_ERROR_NOT_SUPPORTED);
    if (what == "no-memory") refused(*job, "cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY);
    if (what == "failing-kernels") refused(*job, "cuLaunchKernel", CUDA_ERROR_LAUNCH_FAILED, kSoon);
    if (what == "late") late(*job);
    if (what == "hosts") over_hosts(*job);
    if (what == "never") never(job ? &*job : nullptr);
  }
  MPI_Finalize();
  return 0;
}
