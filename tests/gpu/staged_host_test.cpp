// What calls are passed on with where the host MPI knows of GPUs, and where it does not: with a next function
// that looks.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>

#include "cuda_memory.hpp"
#include "interpose/backend/backend.hpp"
#include "interpose/backend/staged_calls.hpp"

namespace heddle::backend {
namespace {

using test::Memory;
using test::TestDriver;
using test::TestMemory;

const TestDriver* driver = nullptr;
const void* seen = nullptr;

int look(const void* data, int, heddle_word, int, int, heddle_word) {
  seen = data;
  return MPI_SUCCESS;
}

// A host that gives this answer to MPIX_Query_cuda_support, or has no such function.
template <int Answer>
void* find(void* handle, const char* name) {
  if (std::strcmp(name, "MPIX_Query_cuda_support") != 0) return dlsym(handle, name);
  return Answer < 0 ? nullptr : reinterpret_cast<void*>(+[] { return Answer; });
}

// Where MPI_Send finds its data.
template <int Answer>
const void* sent_from(const void* data) {
  HeddleHostSymbols host = {find<Answer>, RTLD_DEFAULT, "the host", "?", {}};
  host.next.Send = look;
  // Kept, as in a process: MPI calls back into it in MPI_Finalize.
  auto* const backend = new Backend(load_host_mpi(host).value());
  const HeddleStagedCalls functions = staged_functions(*new StagedCalls(*backend, host));
  EXPECT_EQ(functions.Recv, nullptr) << "the host has none";
  EXPECT_EQ(functions.Send(data, 5, static_cast<heddle_word>(MPI_INT), 0, 0,
                           static_cast<heddle_word>(MPI_COMM_SELF)),
            MPI_SUCCESS);
  return seen;
}

TEST(StagedHost, GetsImagesUnlessItServesGpus) {
  const TestMemory memory(*driver, Memory::device, 20);
  int here[5] = {};
  EXPECT_EQ(sent_from<0>(here), here);
  EXPECT_NE(sent_from<0>(memory.data()), memory.data());
  EXPECT_NE(sent_from<-1>(memory.data()), memory.data());
  EXPECT_EQ(sent_from<1>(memory.data()), memory.data());
}

}  // namespace
}  // namespace heddle::backend

// Read by an address sanitizer if there is one: the host MPI leaks, and so does this test.
extern "C" __attribute__((visibility("default"))) const char*
__asan_default_options() {  // NOLINT(bugprone-reserved-identifier)
  return "detect_leaks=0";
}

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 2) return 2;
  MPI_Init(nullptr, nullptr);
  const heddle::test::TestDriver cuda(argv[1]);
  heddle::backend::driver = &cuda;
  const int failed = RUN_ALL_TESTS();
  MPI_Finalize();
  return failed;
}
