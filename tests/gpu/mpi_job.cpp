// An MPI program whose buffers lie in memory of any kind, on each rank another: results are the host MPI's,
// which it computes from copies in the host's memory. The driver is loaded long after MPI, as by a Python
// program that imports PyTorch after mpi4py. Arguments: the driver's library, what to do, a seed.
#include <algorithm>
#include <chrono>
#include <thread>

#include "mpi_buffers.hpp"

namespace {

using gpu_job::Buffer;
using gpu_job::expect;
using gpu_job::Job;
using heddle::test::Memory;
using heddle::test::memory_name;
using heddle::test::TestDriver;
using heddle::test::TestMemory;

// a op b = 3a + b, which depends on the order.
void user_function(void* in, void* inout, int* count, MPI_Datatype* type) {
  int size = 0;
  PMPI_Type_size(*type, &size);
  for (int i = 0; i < *count * size / 4; ++i)
    static_cast<unsigned*>(inout)[i] = 3 * static_cast<unsigned*>(in)[i] + static_cast<unsigned*>(inout)[i];
}

struct Reduction {
  const char* name;
  MPI_Datatype type;
  MPI_Op op;
  std::size_t width;  // bytes of an element in memory, gaps included
};

// Small whole numbers in every type: sums are exact in any order.
std::vector<unsigned char> make_input(const Reduction& what, std::size_t count, job::Random& random) {
  std::vector<unsigned char> bytes(what.width * count);
  for (std::size_t i = 0; i < count; ++i) {
    unsigned char* const to = bytes.data() + i * what.width;
    const int small = static_cast<int>(random.below(9)) - 4;
    if (what.type == MPI_FLOAT || what.type == MPI_FLOAT_INT) {
      const auto value = static_cast<float>(small);
      std::memcpy(to, &value, sizeof value);
    } else if (what.type == MPI_DOUBLE || what.type == MPI_DOUBLE_INT) {
      const auto value = static_cast<double>(small);
      std::memcpy(to, &value, sizeof value);
    } else {
      for (std::size_t at = 0; at + 4 <= what.width; at += 4)
        std::memcpy(to + at, &small, sizeof small);
    }
    const int index = static_cast<int>(random.below(1000));
    if (what.type == MPI_FLOAT_INT) std::memcpy(to + 4, &index, 4);
    if (what.type == MPI_DOUBLE_INT) std::memcpy(to + 8, &index, 4);
  }
  return bytes;
}

void allreduce_once(Job& job, MPI_Comm comm, const char* where, const Reduction& what, std::size_t count,
                    bool in_place) {
  const int rank = job::rank_of(comm);
  const std::uint64_t seed = job.random.next();
  job::Random own(seed + static_cast<std::uint64_t>(rank));
  const Memory in_kind = job.kind(rank);
  const Memory out_kind = job.kind(rank);
  const std::vector<unsigned char> mine = make_input(what, count, own);
  std::vector<unsigned char> from = mine;
  std::vector<unsigned char> expected(mine.size(), 0x11);
  PMPI_Allreduce(from.data(), expected.data(), static_cast<int>(count), what.type, what.op, comm);

  const Buffer in(job.driver, in_kind, mine.size(), rank % 2);
  const Buffer out(job.driver, out_kind, mine.size(), (rank + 1) % 2);
  in.set(mine);
  out.set(in_place ? mine : std::vector<unsigned char>(mine.size(), 0x11));
  const int rc = MPI_Allreduce(in_place ? MPI_IN_PLACE : in.at(), out.at(), static_cast<int>(count),
                               what.type, what.op, comm);
  std::vector<unsigned char> result = out.value();
  // What is between a double and its int is nobody's.
  if (what.type == MPI_DOUBLE_INT) {
    for (std::size_t i = 12; i + 4 <= result.size(); i += 16)
      std::memcpy(result.data() + i, expected.data() + i, 4);
  }
  if (rc != MPI_SUCCESS || result != expected || (!in_place && in.value() != mine))
    job::fail("allreduce %s of %zu on %s from %s to %s memory%s: %s", what.name, count, where,
              memory_name(in_kind), memory_name(out_kind), in_place ? " in place" : "",
              rc != MPI_SUCCESS ? "error" : "wrong");
}

void allreduces(Job& job, MPI_Comm comm, const char* where) {
  MPI_Datatype triple;
  MPI_Op user;
  MPI_Type_contiguous(3, MPI_UNSIGNED, &triple);
  MPI_Type_commit(&triple);
  MPI_Op_create(user_function, 0, &user);
  const Reduction all[] = {{"int sum", MPI_INT, MPI_SUM, 4},
                           {"float sum", MPI_FLOAT, MPI_SUM, 4},
                           {"double max", MPI_DOUBLE, MPI_MAX, 8},
                           {"char bor", MPI_BYTE, MPI_BOR, 1},
                           {"float-int minloc", MPI_FLOAT_INT, MPI_MINLOC, 8},
                           {"double-int maxloc", MPI_DOUBLE_INT, MPI_MAXLOC, 16},
                           {"triples by the user", triple, user, 12},
                           {"unsigned by the user", MPI_UNSIGNED, user, 4}};
  for (const Reduction& what : all) {
    for (const std::size_t count : {1, 3, 1000, 90'001}) {
      for (const bool in_place : {false, true})
        allreduce_once(job, comm, where, what, count, in_place);
    }
  }
  allreduce_once(job, comm, where, all[1], 1'500'000, false);
  MPI_Allreduce(nullptr, nullptr, 0, MPI_INT, MPI_SUM, comm);
  MPI_Op_free(&user);
  MPI_Type_free(&triple);
}

struct Shape {
  const char* name;
  MPI_Datatype type;
  std::size_t begin;              // of the buffer MPI is given, in the memory
  std::size_t bytes;              // of one element, all it spans
  std::vector<std::size_t> ints;  // that belong to it, in order, by place
};

void bcast_once(Job& job, MPI_Comm comm, const char* where, const Shape& shape, int count) {
  const int rank = job::rank_of(comm);
  const int root = static_cast<int>(job.random.below(static_cast<std::uint64_t>(job::size_of(comm))));
  const Memory kind = job.kind(rank);
  const std::size_t bytes = shape.bytes * static_cast<std::size_t>(count);
  std::vector<unsigned char> mine(bytes, static_cast<unsigned char>(rank + 1));
  std::vector<unsigned char> expected = mine;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    for (const std::size_t place : shape.ints) {
      const unsigned value = 1000U * static_cast<unsigned>(i) + static_cast<unsigned>(place);
      std::memcpy(expected.data() + i * shape.bytes + place * 4, &value, 4);
    }
  }
  const Buffer buffer(job.driver, kind, bytes, rank % 2);
  buffer.set(rank == root ? expected : mine);
  const int rc =
      MPI_Bcast(buffer.at(static_cast<std::ptrdiff_t>(shape.begin)), count, shape.type, root, comm);
  if (rc != MPI_SUCCESS || buffer.value() != expected)
    job::fail("bcast of %d %s on %s in %s memory from %d: %s", count, shape.name, where, memory_name(kind),
              root, rc != MPI_SUCCESS ? "error" : "wrong");
}

// Absolute addresses, on every rank others.
void bcast_absolute(Job& job, MPI_Comm comm) {
  const int rank = job::rank_of(comm);
  const Buffer buffer(job.driver, job.kind(rank), 64, rank % 2);
  std::vector<unsigned char> mine(64, static_cast<unsigned char>(rank + 1));
  buffer.set(mine);
  int lengths[] = {8, 8};
  MPI_Aint places[2];
  MPI_Get_address(buffer.at(0), &places[0]);
  places[1] = places[0] + 32;
  MPI_Datatype type;
  MPI_Type_create_hindexed(2, lengths, places, MPI_BYTE, &type);
  MPI_Type_commit(&type);
  const int rc = MPI_Bcast(MPI_BOTTOM, 1, type, 0, comm);
  MPI_Type_free(&type);
  for (const std::size_t i : {0, 32})
    std::fill_n(mine.begin() + static_cast<std::ptrdiff_t>(i), 8, static_cast<unsigned char>(1));
  if (rc != MPI_SUCCESS || buffer.value() != mine) job::fail("bcast of absolute addresses");
}

void bcasts(Job& job, MPI_Comm comm, const char* where) {
  MPI_Datatype every_other;
  MPI_Type_vector(3, 1, 2, MPI_INT, &every_other);
  MPI_Datatype backwards;  // the second int of an element lies before the first
  MPI_Type_create_hvector(2, 1, -8, MPI_INT, &backwards);
  MPI_Datatype padded;
  MPI_Type_create_resized(every_other, 0, 24, &padded);
  for (MPI_Datatype* type : {&every_other, &backwards, &padded})
    MPI_Type_commit(type);
  const Shape shapes[] = {{"ints", MPI_INT, 0, 4, {0}},
                          {"vectors", padded, 0, 24, {0, 2, 4}},
                          {"vectors backwards", backwards, 8, 12, {0, 2}}};
  for (const int count : {1, 7, 5000, 300'000}) {
    bcast_once(job, comm, where, shapes[0], count);
    bcast_once(job, comm, where, shapes[1], count);
  }
  bcast_once(job, comm, where, shapes[2], 1);
  bcast_absolute(job, comm);
  for (MPI_Datatype* type : {&every_other, &backwards, &padded})
    MPI_Type_free(type);
}

// Between the even ranks and the odd ones; the buffers of MPI_PROC_NULL lead nowhere.
void intercommunicator(Job& job) {
  const int rank = job::rank_of(MPI_COMM_WORLD);
  const int size = job::size_of(MPI_COMM_WORLD);
  if (size < 2) return;
  MPI_Comm mine;
  MPI_Comm other;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &mine);
  MPI_Intercomm_create(mine, 0, MPI_COMM_WORLD, 1 - rank % 2, 1, &other);
  for (int i = 0; i < 4; ++i) {
    const Buffer in(job.driver, job.kind(rank), 4, 0);
    const Buffer out(job.driver, job.kind(rank), 4, 1);
    in.set({static_cast<unsigned char>(1 + rank % 2), 0, 0, 0});
    if (MPI_Allreduce(in.at(), out.at(), 1, MPI_INT, MPI_SUM, other) != MPI_SUCCESS)
      job::fail("between groups");
    const int others = rank % 2 == 0 ? size / 2 * 2 : (size + 1) / 2;
    if (out.value() != std::vector<unsigned char>{static_cast<unsigned char>(others), 0, 0, 0})
      job::fail("allreduce between groups: %d instead of %d", out.value()[0], others);
    int root = 0;
    if (rank % 2 == 0) root = rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
    void* const nowhere = reinterpret_cast<void*>(std::uintptr_t{0x10});
    if (MPI_Bcast(root == MPI_PROC_NULL ? nowhere : in.at(), 1, MPI_INT, root, other) != MPI_SUCCESS)
      job::fail("bcast between groups");
    if (in.value()[0] != 1) job::fail("bcast between groups gave %d", in.value()[0]);
  }
  MPI_Comm_free(&other);
  MPI_Comm_free(&mine);
}

// What lies between elements is the program's, also while a call is under way: of pairs of ints the second
// one.
class Pairs {
 public:
  Pairs(const TestDriver& driver, int first) : memory_(driver, Memory::device, kPairs * 8) {
    std::vector<int> values;
    for (int i = 0; i < kPairs; ++i)
      values.insert(values.end(), {first, second_});
    memory_.put(values.data(), values.size() * 4);
    MPI_Type_create_resized(MPI_INT, 0, 8, &type_);
    MPI_Type_commit(&type_);
  }
  Pairs(const Pairs&) = delete;
  Pairs& operator=(const Pairs&) = delete;
  ~Pairs() { MPI_Type_free(&type_); }

  void* data() const { return memory_.data(); }
  MPI_Datatype type() const { return type_; }
  void change_second() {
    second_ = 2;
    for (std::size_t i = 0; i < kPairs; ++i) {
      memory_.put(&second_, 4, i * 8 + 4);
    }
  }
  void expect_all(const char* what, int first) const {
    std::vector<int> values(kPairs * 2);
    memory_.get(values.data(), values.size() * 4);
    for (std::size_t i = 0; i < values.size(); i += 2) {
      if (values[i] != first || values[i + 1] != second_)
        job::fail("%s: pair %zu is (%d, %d) instead of (%d, %d)", what, i / 2, values[i], values[i + 1],
                  first, second_);
    }
  }

  static constexpr int kPairs = 100;

 private:
  TestMemory memory_;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
  int second_ = 1;
};

// Some ranks do not call the function.
Pairs* changed_by_op = nullptr;

void sum_and_change(void* in, void* inout, int* count, MPI_Datatype* /*type*/) {
  for (int i = 0; i < *count; ++i)
    static_cast<int*>(inout)[2 * i] += static_cast<int*>(in)[2 * i];
  changed_by_op->change_second();
}

void gaps(Job& job) {
  MPI_Op op;
  MPI_Op_create(sum_and_change, 1, &op);
  const Pairs own(job.driver, 1);
  const int size = job::size_of(MPI_COMM_WORLD);
  for (const bool in_place : {false, true}) {
    Pairs sum(job.driver, 1);
    changed_by_op = &sum;
    MPI_Allreduce(in_place ? MPI_IN_PLACE : own.data(), sum.data(), Pairs::kPairs, own.type(), op,
                  MPI_COMM_WORLD);
    sum.expect_all("a sum of pairs", size);
  }
  MPI_Op_free(&op);
  if (size == 1) return;
  const bool is_root = job::rank_of(MPI_COMM_WORLD) == 0;
  Pairs pairs(job.driver, is_root ? 7 : 1);
  std::thread meanwhile;
  // The others wait for the root then.
  constexpr std::chrono::milliseconds kTime{100};
  if (is_root)
    std::this_thread::sleep_for(2 * kTime);
  else
    meanwhile = std::thread([&] {
      std::this_thread::sleep_for(kTime);
      pairs.change_second();
    });
  MPI_Bcast(pairs.data(), Pairs::kPairs, pairs.type(), 0, MPI_COMM_WORLD);
  if (!is_root) meanwhile.join();
  pairs.expect_all("a bcast of pairs", 7);
}

void conform(Job& job) {
  MPI_Comm fresh;
  MPI_Comm_dup(MPI_COMM_WORLD, &fresh);  // is taken over in the middle of it
  job::make_worthwhile(fresh);
  const job::Named all[] = {{"world", MPI_COMM_WORLD}, {"self", MPI_COMM_SELF}, {"fresh", fresh}};
  for (const job::Named& where : all) {
    allreduces(job, where.comm, where.name);
    bcasts(job, where.comm, where.name);
  }
  if (job::size_of(MPI_COMM_WORLD) > 1 && job::served_by(0, 1024, fresh) == "host")
    job::fail("heddle has taken nothing over");
  MPI_Comm_free(&fresh);
  intercommunicator(job);
  gaps(job);
}

// Without a copy of what a rank gives the others would wait for it, and the communicator fails. That a result
// is not copied back is nobody else's matter.
void copies_that_fail(Job& job, const TestMemory& small) {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  job::warm_up(comm);
  const auto sum = [&] { return MPI_Allreduce(MPI_IN_PLACE, small.data(), 10, MPI_INT, MPI_SUM, comm); };
  job.driver.fail("cuMemcpyHtoDAsync", CUDA_ERROR_ILLEGAL_ADDRESS);
  expect("a copy back that fails", sum(), MPI_ERR_OTHER);
  expect("what follows a copy back that fails", sum(), MPI_SUCCESS);
  job.driver.fail("cuMemcpyDtoHAsync", CUDA_ERROR_ILLEGAL_ADDRESS);
  expect("a copy that fails", sum(), MPI_ERR_OTHER);
  expect("what follows a copy that fails", sum(), MPI_ERR_OTHER);
  MPI_Comm_free(&comm);
}

// Errors come to the user's error handler and leave the communicator usable.
void bad(Job& job) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  TestMemory memory(job.driver, Memory::device, 100, 0);
  void* const address = memory.lose();
  int one = 1;
  int sum = 0;
  expect("freed input", MPI_Allreduce(address, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD), MPI_ERR_BUFFER);
  expect("freed output", MPI_Allreduce(&one, address, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD), MPI_ERR_BUFFER);
  expect("freed buffer", MPI_Bcast(address, 1, MPI_INT, 0, MPI_COMM_WORLD), MPI_ERR_BUFFER);
  const TestMemory small(job.driver, Memory::device, 100, 1);
  expect("longer than its memory",
         MPI_Allreduce(MPI_IN_PLACE, small.data(), 1 << 24, MPI_INT, MPI_SUM, MPI_COMM_WORLD),
         MPI_ERR_BUFFER);
  if (job.driver.is_double()) copies_that_fail(job, small);
  expect("aliased", MPI_Allreduce(small.data(), small.data(), 10, MPI_INT, MPI_SUM, MPI_COMM_WORLD),
         MPI_ERR_BUFFER);
  // From the host's memory to a device's.
  int here = 0;
  MPI_Aint places[2];
  int lengths[] = {1, 1};
  MPI_Get_address(&here, &places[0]);
  MPI_Get_address(small.data(), &places[1]);
  if (places[0] > places[1]) std::swap(places[0], places[1]);
  MPI_Datatype both;
  MPI_Type_create_hindexed(2, lengths, places, MPI_INT, &both);
  MPI_Type_commit(&both);
  expect("two kinds of memory", MPI_Bcast(MPI_BOTTOM, 1, both, 0, MPI_COMM_WORLD), MPI_ERR_OTHER);
  MPI_Type_free(&both);
  for (int i = 0; i < 4; ++i) {
    if (MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS ||
        sum != job::size_of(MPI_COMM_WORLD))
      job::fail("the communicator is not usable any more");
  }
  allreduces(job, MPI_COMM_WORLD, "world, after errors");
}

// One rank alone is wrong: the job ends.
void lone(Job& job) {
  TestMemory memory(job.driver, Memory::device, 100, 0);
  void* const address = job::rank_of(MPI_COMM_WORLD) == 1 ? memory.lose() : memory.data();
  MPI_Allreduce(MPI_IN_PLACE, address, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

// With a driver that is too old: the host's memory as ever, and an error for the rest.
void too_old(Job& job) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const TestMemory memory(job.driver, Memory::device, 100, 0);
  job::warm_up(MPI_COMM_WORLD);
  expect("too old", MPI_Allreduce(MPI_IN_PLACE, memory.data(), 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD),
         MPI_ERR_OTHER);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc < 3) job::fail("arguments: library, what to do, seed");
  job::warm_up(MPI_COMM_WORLD);
  {
    const TestDriver driver(argv[1]);
    Job job{driver, job::Random(argc > 3 ? static_cast<std::uint64_t>(std::atoll(argv[3])) : 1)};
    const std::string what = argv[2];
    if (what == "conform") conform(job);
    if (what == "bad") bad(job);
    if (what == "copies") copies_that_fail(job, TestMemory(driver, Memory::device, 100, 0));
    if (what == "lone") lone(job);
    if (what == "too-old") too_old(job);
  }
  MPI_Finalize();
  return 0;
}
