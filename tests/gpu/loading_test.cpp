// How kernels get into contexts: once each, whatever threads come at the same time.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "gpu/exchange.hpp"
#include "gpu/kernel_library.hpp"
#include "gpu/kernels/binaries.hpp"
#include "gpu_fixture.hpp"

namespace heddle::gpu {
namespace {

ContextInstance made_up(std::uintptr_t context, std::uint64_t instance) {
  return {reinterpret_cast<CUcontext>(context), instance};
}

TEST(ReadyContexts, OnceForEachInstanceOfAContext) {
  ReadyContexts ready;
  int loads = 0;
  const auto load = [&]() -> Status {
    ++loads;
    return {};
  };
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_TRUE(ready.once(made_up(16, 1), load).ok());
    EXPECT_TRUE(ready.once(made_up(32, 2), load).ok());
  }
  EXPECT_EQ(loads, 2);
  EXPECT_TRUE(ready.once(made_up(16, 3), load).ok());
  EXPECT_TRUE(ready.once(made_up(32, 2), load).ok());
  EXPECT_EQ(loads, 3);
  EXPECT_TRUE(ready.once(made_up(16, 1), load).ok());  // whose place another one had
  EXPECT_EQ(loads, 4);
}

TEST(ReadyContexts, AgainAfterAFailure) {
  ReadyContexts ready;
  int loads = 0;
  const auto load = [&] { return ++loads == 1 ? Status(Code::system, "the first one") : Status(); };
  EXPECT_EQ(ready.once(made_up(16, 1), load).message(), "the first one");
  EXPECT_TRUE(ready.once(made_up(16, 1), load).ok());
  EXPECT_TRUE(ready.once(made_up(16, 1), load).ok());
  EXPECT_EQ(loads, 2);
}

// Who comes meanwhile waits, and finds it done. (The first one gives the second some time to do it as well.)
TEST(ReadyContexts, OneOfTwoThreads) {
  ReadyContexts ready;
  std::atomic<int> loads = 0;
  std::thread second;
  const auto load_too = [&]() -> Status {
    ++loads;
    return {};
  };
  const Status status = ready.once(made_up(16, 1), [&]() -> Status {
    ++loads;
    second = std::thread([&] { EXPECT_TRUE(ready.once(made_up(16, 1), load_too).ok()); });
    for (int look = 0; look < 100 && loads == 1; ++look)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return {};
  });
  second.join();
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(loads, 1);
}

// A load may wait for what a thread with another context is about to launch.
TEST(ReadyContexts, OtherContextsGoOn) {
  ReadyContexts ready;
  const auto load = [&]() -> Status {
    Status other;
    std::thread([&] { other = ready.once(made_up(32, 2), [] { return Status(); }); }).join();
    return other;
  };
  EXPECT_TRUE(ready.once(made_up(16, 1), load).ok());
}

TEST(ExchangeKernel, IsLoadedOnceIntoEachContext) {
  if (kernels::binary(kernels::Family::exchange) == nullptr) GTEST_SKIP() << "built without kernels";
  const Driver functions = load_driver(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)).value();
  ExchangeKernel kernel(functions);
  const int before = calls("cuFuncLoad");
  for (int call = 0; call < 10; ++call) {
    driver->set_current(driver->primary(call % 2));
    EXPECT_TRUE(kernel.load().ok());
  }
  EXPECT_EQ(calls("cuFuncLoad") - before, 2);
  driver->set_current(driver->primary(0));
}

}  // namespace
}  // namespace heddle::gpu
