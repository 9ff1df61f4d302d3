// The kernel that exchanges short vectors as a function of the host, from the same text
// (gpu/kernels/exchange.hpp), in parts: the double does all of a process's work by turns, so none of it may
// wait for another.
#pragma once

#include "gpu/kernels/exchange.hpp"
#include "sparse_twins.hpp"

namespace heddle::test {

// Makes the addresses in the arguments the double's; false where one leads nowhere.
bool translate(gpu::kernels::ExchangeArguments& arguments, unsigned blocks, const Reach& reach);
// What the kernel does before it waits.
void send_all(const gpu::kernels::ExchangeArguments& arguments, unsigned blocks);
// Whether it need not wait.
bool have_come(const gpu::kernels::ExchangeArguments& arguments, unsigned blocks);
void run_exchange(const gpu::kernels::ExchangeArguments& arguments, unsigned blocks);

}  // namespace heddle::test
