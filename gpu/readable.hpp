// Whether the host can read at an address.
#pragma once

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

namespace heddle::gpu {

// Asked of the kernel, so that nothing is harmed where it cannot. True where the kernel does not say. About 300 ns.
inline bool is_readable(const void* address) {
  char byte = 0;
  const iovec to = {&byte, 1};
  const iovec from = {const_cast<void*>(address), 1};
  const int saved_errno = errno;
  const bool readable = process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1 || errno != EFAULT;
  errno = saved_errno;
  return readable;
}

}  // namespace heddle::gpu
