// The same for the native API: counted_native allreduce|bcast|persistent|complex|extended BYTES CALLS, a
// process per rank, started with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "heddle/heddle.h"

namespace {

struct Call {
  std::string_view name;
  heddle_comm_t comm;
  heddle_request_t request;
  std::vector<float> in;
  std::vector<float> out;
};

void check(heddle_status status) {
  if (status == HEDDLE_OK) return;
  std::fprintf(stderr, "%s\n", heddle_last_error());
  std::exit(1);
}

}  // namespace

extern "C" __attribute__((noinline)) void heddle_counted(void* call) {
  auto& c = *static_cast<Call*>(call);
  if (c.name == "allreduce") {
    check(heddle_allreduce(c.in.data(), c.out.data(), c.in.size(), HEDDLE_FLOAT32, HEDDLE_SUM, c.comm));
  } else if (c.name == "bcast") {
    check(heddle_bcast(c.out.data(), c.out.size() * sizeof(float), 0, c.comm));
  } else if (c.name == "complex") {  // products of two doubles each
    check(heddle_allreduce(c.in.data(), c.out.data(), c.in.size() / 4, HEDDLE_COMPLEX_DOUBLE, HEDDLE_PROD,
                           c.comm));
  } else if (c.name == "extended") {
    check(
        heddle_allreduce(c.in.data(), c.out.data(), c.in.size() / 4, HEDDLE_LONG_DOUBLE, HEDDLE_SUM, c.comm));
  } else {
    check(heddle_start(c.request));
    check(heddle_wait(&c.request));
  }
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::size_t count = std::strtoul(argv[2], nullptr, 10) / sizeof(float);
  const float one =
      std::string_view(argv[1]) == "extended" ? 0 : 1;  // bits of other numbers are none of long double
  Call call{argv[1], nullptr, nullptr, std::vector<float>(count, one), std::vector<float>(count)};
  check(heddle_comm_create_env(&call.comm));
  check(heddle_allreduce_init(call.in.data(), call.out.data(), count, HEDDLE_FLOAT32, HEDDLE_SUM, call.comm,
                              &call.request));
  int rank = 0;
  check(heddle_comm_rank(call.comm, &rank));
  for (int i = 0; i < 50; ++i)
    heddle_counted(&call);
  const long calls = std::strtol(argv[3], nullptr, 10);
  for (long i = 0; i < calls; ++i) {
    if (rank == 0) usleep(2000);
    heddle_counted(&call);
  }
  check(heddle_request_free(&call.request));
  check(heddle_comm_destroy(call.comm));
  return 0;
}
