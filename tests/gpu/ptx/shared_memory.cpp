#include "shared_memory.hpp"

#include <fmt/format.h>

namespace heddle::test::ptx {

void SharedMemory::begin(std::size_t bytes, unsigned threads) {
  memory_.assign(bytes, std::byte{0xA5});
  bytes_.assign(bytes, Byte());
  warp_epochs_.assign(threads / kWarp, 0);
  epoch_ = 1;
}

// Whether another thread's use may come before or after what `thread` does now.
bool SharedMemory::conflicts(const Use& use, unsigned thread) const {
  if (use.epoch != epoch_) return false;
  if (use.in_others || use.thread / kWarp != thread / kWarp) return true;
  if (use.warp_epoch != warp_epochs_[thread / kWarp]) return false;
  return use.several || use.thread != thread;
}

void SharedMemory::note(Use& use, unsigned thread, bool atomic) const {
  const std::uint32_t warp_epoch = warp_epochs_[thread / kWarp];
  const bool is_now = use.epoch == epoch_;
  const bool in_warp = is_now && use.thread / kWarp == thread / kWarp;
  const bool others = is_now && (use.in_others || !in_warp);
  const bool several = in_warp && use.warp_epoch == warp_epoch && (use.several || use.thread != thread);
  use = {epoch_, warp_epoch, static_cast<std::uint16_t>(thread), several, others, atomic};
}

std::string SharedMemory::use(unsigned thread, std::size_t at, std::size_t bytes, Access access) {
  for (std::size_t i = at; i < at + bytes; ++i) {
    Byte& byte = bytes_[i];
    const bool is_atomic = access == Access::atomic;
    if (access != Access::write && !byte.written)
      return fmt::format("reads byte {} of shared memory, which nobody has written", i);
    if (conflicts(byte.write, thread) && !(is_atomic && byte.write.atomic))
      return fmt::format("uses byte {} of shared memory, which thread {} writes, with no barrier in between",
                         i, byte.write.thread);
    if (access != Access::read) {
      if (conflicts(byte.read, thread))
        return fmt::format(
            "writes byte {} of shared memory, which thread {} reads, with no barrier in between", i,
            byte.read.thread);
      byte.written = true;
      note(byte.write, thread, is_atomic);
    } else {
      note(byte.read, thread, false);
    }
  }
  return {};
}

}  // namespace heddle::test::ptx
