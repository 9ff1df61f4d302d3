// Whether the host can read at an address.
#pragma once

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

namespace heddle::gpu {

// By what the kernel says of a byte that it is to send. Three times as long as is_readable(), or more. True
// where there is no pipe to be had.
inline bool is_readable_by_pipe(const void* address) {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return true;
  const bool readable = write(ends[1], address, 1) == 1 || errno != EFAULT;
  close(ends[0]);
  close(ends[1]);
  return readable;
}

// Asked of the kernel, so that nothing is harmed where it cannot. About 300 ns. Containers may forbid to read
// memory by this call, also a process's own (EPERM), and not every kernel has it (ENOSYS): that says nothing
// of the address.
inline bool is_readable(const void* address) {
  char byte = 0;
  const iovec to = {&byte, 1};
  const iovec from = {const_cast<void*>(address), 1};
  const int saved_errno = errno;
  bool readable = process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1;
  if (!readable && errno != EFAULT) readable = is_readable_by_pipe(address);
  errno = saved_errno;
  return readable;
}

}  // namespace heddle::gpu
