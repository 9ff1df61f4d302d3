// An MPI program on several hosts whose sums HEDDLE_COMPRESS makes smaller, in GPU memory on some ranks or on
// all: the same bits as of sums in the host's memory, call by call, which residuals add to. That no vector
// went to the host shows in the bytes that the double of CUDA's driver counts. Arguments: the driver's
// library, what to do.
#include <cstring>
#include <random>
#include <string>

#include "sums_job.hpp"

namespace {

using heddle::test::Buffer;
using heddle::test::Bytes;
using heddle::test::Job;
using heddle::test::kMemories;
using heddle::test::memory_name;
using heddle::test::now;
using heddle::test::Traffic;
using heddle::test::Where;

constexpr std::size_t kLarge = 600'001;  // floats, 2.3 MiB

template <typename T>
Bytes vector_of(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Bytes bytes(count * sizeof(T));
  for (std::size_t i = 0; i < count; ++i) {
    const T value = normal(random);
    std::memcpy(&bytes[i * sizeof value], &value, sizeof value);
  }
  return bytes;
}

// Two communicators that make the same calls, one on the host's memory.
struct Comms {
  MPI_Comm host;
  MPI_Comm gpu;

  Comms() {
    for (MPI_Comm* comm : {&host, &gpu}) {
      MPI_Comm_dup(MPI_COMM_WORLD, comm);
      job::warm_up(*comm);
    }
  }
  Comms(const Comms&) = delete;
  Comms& operator=(const Comms&) = delete;
  ~Comms() {
    MPI_Comm_free(&host);
    MPI_Comm_free(&gpu);
  }
};

// Sums of vectors in memory that stays, as residuals want it.
class Sums {
 public:
  Sums(const Job& job, const Comms& comms, const Where& where, MPI_Datatype type, std::size_t count)
      : job_(job),
        comms_(comms),
        where_(where),
        type_(type),
        count_(count),
        bytes_(count * (type == MPI_FLOAT ? sizeof(float) : sizeof(double))),
        in_(job, where.in, where.in_device, Bytes(bytes_), where.shift),
        out_(job, where.out, where.out_device, Bytes(bytes_), where.shift),
        host_in_(bytes_),
        host_out_(bytes_) {}

  // One more, which `failing` makes fail on this rank's GPU: it is right all the same.
  Traffic sum(const char* failing = nullptr, int after = 0) {
    const unsigned seed = 1000 * ++turn_ + static_cast<unsigned>(job_.rank);
    const Bytes mine = type_ == MPI_FLOAT ? vector_of<float>(count_, seed) : vector_of<double>(count_, seed);
    const auto number = static_cast<int>(count_);
    (where_.in_place ? host_out_ : host_in_) = mine;
    MPI_Allreduce(where_.in_place ? MPI_IN_PLACE : host_in_.data(), host_out_.data(), number, type_, MPI_SUM,
                  comms_.host);
    (where_.in_place ? out_ : in_).put(mine);
    const Traffic before = now(job_);
    if (failing != nullptr) job_.driver->fail_after(failing, after, CUDA_ERROR_LAUNCH_FAILED);
    const int rc = MPI_Allreduce(where_.in_place ? MPI_IN_PLACE : in_.data(), out_.data(), number, type_,
                                 MPI_SUM, comms_.gpu);
    if (failing != nullptr) job_.driver->fail_no_more(failing);
    const Traffic after_it = now(job_);
    if (rc != MPI_SUCCESS || out_.content() != host_out_)
      job::fail("sum %u, %zu values, %s of %s and %s%s%s: %s", turn_, count_,
                where_.in_place ? "in place" : "apart", memory_name(where_.in), memory_name(where_.out),
                failing != nullptr ? ", failing " : "", failing != nullptr ? failing : "",
                rc != MPI_SUCCESS ? "error" : "wrong");
    return {0, after_it.kernels - before.kernels, 0, after_it.to_host - before.to_host,
            after_it.to_gpu - before.to_gpu};
  }
  std::size_t bytes() const { return bytes_; }

 private:
  const Job& job_;
  const Comms& comms_;
  const Where where_;
  const MPI_Datatype type_;
  const std::size_t count_;
  const std::size_t bytes_;
  unsigned turn_ = 0;
  Buffer in_;
  Buffer out_;
  Bytes host_in_;
  Bytes host_out_;
};

// Every rank another kind of memory, also the host's, and in place on all or none; a type that the GPU leaves
// to the host, a short vector, and one that is not aligned.
void conform(const Job& job) {
  const Comms comms;
  for (std::size_t turn = 0; turn < 8; ++turn) {
    const std::size_t own = turn + static_cast<std::size_t>(job.rank);
    Where where;
    where.in = kMemories[own % 6];
    where.out = kMemories[(2 * own + 1) % 6];
    where.in_device = static_cast<int>(own % 2);
    where.in_place = turn % 3 == 0;
    if (job.last() && turn == 4) where.shift = 2;
    Sums sums(job, comms, where, turn == 5 ? MPI_DOUBLE : MPI_FLOAT, turn == 6 ? 40'000 : kLarge / 2 + turn);
    for (int step = 0; step < 3; ++step)
      sums.sum();
  }
}

// All have GPU memory: what crosses the bus.
void crosses(const Job& job, const std::string& what) {
  const Comms comms;
  for (const bool in_place : {false, true}) {
    Where where;
    where.in_place = in_place;
    // Residuals are known by where a vector lies, which may be memory of one before, and its length.
    Sums sums(job, comms, where, MPI_FLOAT, kLarge + (in_place ? 1 : 0));
    for (int step = 0; step < 3; ++step) {
      const Traffic traffic = sums.sum();
      if ((what == "images") != (traffic.kernels == 0)) job::fail("%d kernels", traffic.kernels);
      // The residual goes there once.
      if (what == "images" || step == 0) continue;
      // By codes: alone on its node each of two ranks folds its share, as values.
      const std::size_t most_to_host = what == "entries" ? sums.bytes() / 8 : sums.bytes() * 6 / 10;
      const std::size_t most_to_gpu = what == "entries" ? sums.bytes() / 8 : sums.bytes() * 7 / 10;
      if (traffic.to_host > most_to_host || traffic.to_gpu > most_to_gpu)
        job::fail("%zu bytes to the host, and %zu to the GPU, of a vector of %zu", traffic.to_host,
                  traffic.to_gpu, sums.bytes());
    }
  }
}

// Whatever fails once on the last rank, every result is right: an image does.
void failures(const Job& job) {
  const Comms comms;
  for (const bool in_place : {false, true}) {
    Where where;
    where.in_place = in_place;
    Sums sums(job, comms, where, MPI_FLOAT, kLarge / 2);
    for (const char* name : {"cuLaunchKernel", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync",
                             "cuStreamSynchronize", "cuEventRecord", "cuStreamWaitEvent", "cuMemAlloc"}) {
      for (int after = 0; after < 8; ++after)
        sums.sum(job.last() ? name : nullptr, after);
    }
  }
}

// The GPU does nothing for the last rank, and its vector does not come to the host: the others are in the
// call and would take its next one for this.
void no_image(const Job& job) {
  const Comms comms;
  MPI_Comm_set_errhandler(comms.gpu, MPI_ERRORS_RETURN);
  const Where where;
  Buffer in(job, where.in, where.in_device, Bytes(kLarge * sizeof(float)));
  Buffer out(job, where.out, where.out_device, Bytes(kLarge * sizeof(float)));
  const auto sum = [&] {
    return MPI_Allreduce(in.data(), out.data(), static_cast<int>(kLarge), MPI_FLOAT, MPI_SUM, comms.gpu);
  };
  if (sum() != MPI_SUCCESS) job::fail("a sum: error");
  const char* const failing[] = {"cuLaunchKernel", "cuMemcpyDtoHAsync"};
  for (const char* name : failing)
    if (job.last()) job.fail(name, 1'000);
  if (sum() == MPI_SUCCESS) job::fail("a sum without an image: no error");
  for (const char* name : failing)
    if (job.last()) job.driver->fail_no_more(name);
  if (sum() == MPI_SUCCESS) job::fail("what follows: no error");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc < 3) job::fail("arguments: library, what to do");
  job::warm_up(MPI_COMM_WORLD);
  {
    const std::string what = argv[2];
    const bool bare = what == "bare" && job::rank_of(MPI_COMM_WORLD) == 0;
    const Job job(bare ? nullptr : argv[1]);
    conform(job);
    if (what == "failures") {
      failures(job);
      no_image(job);
    }
    if (what == "codes" || what == "entries" || what == "images") crosses(job, what);
  }
  MPI_Finalize();
  return 0;
}
