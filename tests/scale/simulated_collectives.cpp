// Collectives of simulated ranks: the host's, as each of SimGrid's selectors chooses, and heddle's, one after
// the other on the same machine, with the results checked. Compiled with smpicxx, started by
// tests/scale/study.py, all ranks in one process: nothing here is any rank's own but the local variables.
//
//     simulated_collectives CHECKED_BYTES all|heddle COLLECTIVE:BYTES...
//
// One line for each: result COLLECTIVE BYTES MPICH_US OMPI_US MVAPICH2_US IMPI_US HEDDLE_US ALGORITHM
// CHECKED; with heddle alone the others are 0. Exit status 1 where a result is wrong.
#include <mpi.h>
#include <simgrid/actor.h>
#include <simgrid/engine.h>
#include <smpi/smpi.h>
#include <xbt/config.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "comm/communicator.hpp"
#include "scale/simulated_host.hpp"

// Exported by libsimgrid but in none of its headers: makes the selector that is configured the one in use.
namespace simgrid::smpi::colls {
void set_collectives();
}

namespace heddle::scale {
namespace {

constexpr const char* kSelectors[] = {"mpich", "ompi", "mvapich2", "impi"};

// Small integers: every sum of up to 65,536 of them is exact in float. The prime sets neighbouring blocks
// apart.
constexpr std::size_t kPeriod = 251;
float value_of(int rank, std::size_t i) {
  return static_cast<float>((static_cast<std::size_t>(rank) * 31 + i * 7) % kPeriod);
}

struct Case {
  Collective collective;
  std::size_t bytes;
};

// One rank.
class Run {
 public:
  Run(Communicator& heddle, const Bootstrap& bootstrap, std::size_t checked_bytes, bool hosts_too)
      : heddle_(heddle), bootstrap_(bootstrap), checked_bytes_(checked_bytes), hosts_too_(hosts_too) {
    for (std::size_t i = 0; i < kPeriod; ++i) {
      float sum = 0;
      for (int rank = 0; rank < heddle.size(); ++rank)
        sum += value_of(rank, i);
      sums_.push_back(sum);
    }
  }

  // False where some rank's result is wrong.
  bool measure(const Case& c);

 private:
  using Side = Status (Run::*)(const Case& c);
  Status host(const Case& c);
  Status by_heddle(const Case& c);
  double time_us(const Case& c, Side side);
  void fill(const Case& c);
  bool is_right(const Case& c) const;
  bool all_right(const Case& c);
  std::vector<double> everyones(double mine);

  Communicator& heddle_;
  const Bootstrap& bootstrap_;
  std::size_t checked_bytes_;
  bool hosts_too_;
  std::vector<float> sums_;  // by index modulo kPeriod
  float* in_ = nullptr;
  float* out_ = nullptr;
};

Status Run::host(const Case& c) {
  const auto count = static_cast<int>(c.bytes / sizeof(float));
  if (c.collective == Collective::bcast) {
    MPI_Bcast(out_, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
  } else {
    MPI_Allreduce(in_, out_, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  return {};
}

Status Run::by_heddle(const Case& c) {
  if (c.collective == Collective::bcast) return heddle_.bcast(out_, c.bytes, 0);
  return heddle_.allreduce(in_, out_, c.bytes / sizeof(float), DType::f32, Op::sum);
}

// Microseconds from a moment at which all ranks begin until the last one is done. The first call is not
// timed: in it sides choose and prepare.
double Run::time_us(const Case& c, Side side) {
  double begin = 0;
  for (int i = 0; i < 2; ++i) {
    fill(c);
    world_meeting().wait();
    constexpr double kAligned = 0.1;
    begin = (std::floor(simgrid_get_clock() / kAligned) + 2) * kAligned;
    sg_actor_sleep_until(begin);
    const Status status = (this->*side)(c);
    if (!status.ok()) {
      std::fprintf(stderr, "rank %d: %s\n", heddle_.rank(), status.message().c_str());
      std::abort();
    }
  }
  const std::vector<double> all = everyones(simgrid_get_clock() - begin);
  return *std::max_element(all.begin(), all.end()) * 1e6;
}

void Run::fill(const Case& c) {
  if (c.bytes > checked_bytes_) return;
  for (std::size_t i = 0; i < c.bytes / sizeof(float); ++i) {
    in_[i] = value_of(heddle_.rank(), i);
    out_[i] = c.collective == Collective::bcast && heddle_.rank() == 0 ? in_[i] : -1.0F;
  }
}

bool Run::is_right(const Case& c) const {
  for (std::size_t i = 0; i < c.bytes / sizeof(float); ++i) {
    const float expected = c.collective == Collective::bcast ? value_of(0, i) : sums_[i % kPeriod];
    if (out_[i] != expected) {
      std::fprintf(stderr, "rank %d: element %zu is %g instead of %g\n", heddle_.rank(), i,
                   static_cast<double>(out_[i]), static_cast<double>(expected));
      return false;
    }
  }
  return true;
}

std::vector<double> Run::everyones(double mine) {
  std::vector<double> all(static_cast<std::size_t>(heddle_.size()));
  (void)bootstrap_.allgather(&mine, all.data(), sizeof mine);
  return all;
}

bool Run::all_right(const Case& c) {
  const std::vector<double> wrong = everyones(is_right(c) ? 0 : 1);
  return std::count(wrong.begin(), wrong.end(), 0.0) == heddle_.size();
}

bool Run::measure(const Case& c) {
  // Too large for every rank to have its own: all ranks' vectors are one, which is never copied, and which
  // holds nothing.
  const bool checked = c.bytes <= checked_bytes_;
  static float* shared[2];
  std::vector<float> mine(checked ? 2 * (c.bytes / sizeof(float)) : 0);
  if (checked) {
    in_ = mine.data();
    out_ = mine.data() + c.bytes / sizeof(float);
  } else {
    if (heddle_.rank() == 0)
      for (float*& buffer : shared)
        buffer = static_cast<float*>(SMPI_SHARED_MALLOC(c.bytes));
    world_meeting().wait();
    in_ = shared[0];
    out_ = shared[1];
  }
  bool right = true;
  std::vector<double> host_us;
  for (const char* selector : kSelectors) {
    if (!hosts_too_) {
      host_us.push_back(0);
      continue;
    }
    world_meeting().wait();
    if (heddle_.rank() == 0) {
      sg_cfg_set_string("smpi/coll-selector", selector);
      simgrid::smpi::colls::set_collectives();
    }
    host_us.push_back(time_us(c, &Run::host));
    right = (!checked || all_right(c)) && right;
  }
  const double heddle_us = time_us(c, &Run::by_heddle);
  right = (!checked || all_right(c)) && right;
  if (heddle_.rank() == 0) {
    std::printf("result %s %zu", collective_name(c.collective), c.bytes);
    for (const double us : host_us)
      std::printf(" %.4f", us);
    std::printf(" %.4f %s %s\n", heddle_us, heddle_.algorithm(c.collective, c.bytes),
                !right    ? "wrong"
                : checked ? "checked"
                          : "unchecked");
    std::fflush(stdout);
    if (!checked)
      for (float*& buffer : shared)
        SMPI_SHARED_FREE(buffer);
  }
  return right;
}

bool parse(const std::string& text, Case* c) {
  const std::size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  if (colon == std::string::npos || (name != "allreduce" && name != "bcast")) return false;
  *c = {name == "bcast" ? Collective::bcast : Collective::allreduce, std::stoul(text.substr(colon + 1))};
  return c->bytes % sizeof(float) == 0;
}

int run(int argc, char** argv) {
  SimulatedHost host(MPI_COMM_WORLD);
  const Bootstrap bootstrap = host.bootstrap();
  const ParsedConfig config = parse_config_from_environ();
  Result<std::unique_ptr<Communicator>> heddle = Communicator::create(bootstrap, config.config);
  if (!heddle.ok()) {
    std::fprintf(stderr, "%s\n", heddle.status().message().c_str());
    return 1;
  }
  Run run(*heddle.value(), bootstrap, std::stoul(argv[1]), std::strcmp(argv[2], "all") == 0);
  bool right = true;
  for (int i = 3; i < argc; ++i) {
    Case c{};
    if (!parse(argv[i], &c)) return 2;
    right = run.measure(c) && right;
  }
  return right ? 0 : 1;
}

}  // namespace
}  // namespace heddle::scale

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int status = argc > 2 ? heddle::scale::run(argc, argv) : 2;
  MPI_Finalize();
  return status;
}
