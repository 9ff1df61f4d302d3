// The lent point-to-point functions where memory is missing.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "transports/mpi/mpi_transport.hpp"

namespace {
thread_local bool no_memory = false;
}  // namespace

// Not inlined: where the compiler sees malloc on one side and `new` on the other it warns of a mismatch that
// is not one.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* const memory = no_memory ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}

namespace heddle::test {
namespace {

// What the lender has begun can be taken back, also where there was no memory to note it in.
TEST(MpiTransport, NothingStaysOpenForWantOfMemory) {
  struct Lender {
    int opened = 0;
    int closed = 0;
  } lender;
  heddle_p2p p2p{};
  p2p.send = [](const void*, std::size_t, int, int, void*, void* context) {
    return ++static_cast<Lender*>(context)->opened, 0;
  };
  p2p.recv = [](void*, std::size_t, int, int, void*, void* context) {
    return ++static_cast<Lender*>(context)->opened, 0;
  };
  p2p.cancel = [](void*, void* context) { return ++static_cast<Lender*>(context)->closed, 0; };
  p2p.context = &lender;
  for (const bool sends : {true, false}) {
    const auto transport = make_mpi_transport(p2p);
    int value = 0;
    Ticket ticket;
    no_memory = true;
    EXPECT_THROW(
        (void)(sends ? transport->send(1, 0, &value, 4, ticket) : transport->recv(1, 0, &value, 4, ticket)),
        std::bad_alloc);
    no_memory = false;
    transport->cancel(ticket);
    EXPECT_EQ(lender.opened, lender.closed);
  }
}

}  // namespace
}  // namespace heddle::test
