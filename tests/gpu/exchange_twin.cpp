#include "exchange_twin.hpp"

namespace heddle::test {

using namespace gpu::kernels;

namespace {

std::uint32_t number_in(const ExchangeArguments& a, std::uint64_t block) {
  return static_cast<std::uint32_t>(a.turns[block] + 1);
}

bool has_come(const ExchangeArguments& a, std::uint64_t block, std::uint32_t sender) {
  const std::uint32_t number = number_in(a, block);
  const std::uint64_t* const slot = slot_of(a, a.rank, sender, number) + block * kBlockWords;
  for (std::uint64_t at = 0; at < words_of(a, sender, block, number); ++at) {
    if (number_of(load_system_word(slot + at)) != number) return false;
  }
  return true;
}

template <typename Address>
bool translate_one(Address& address, std::size_t bytes, const Reach& reach) {
  address = reinterpret_cast<Address>(reach(address, bytes));
  return address != nullptr;
}

}  // namespace

bool translate(ExchangeArguments& a, unsigned blocks, const Reach& reach) {
  const std::size_t slots = std::size_t{2} * a.ranks * a.room * sizeof(std::uint64_t);
  for (std::uint32_t r = 0; r < a.ranks; ++r) {
    if (!translate_one(a.slots[r], slots, reach)) return false;
  }
  const bool receives = a.root != a.rank;
  return (!sends_vector(a, a.rank) || translate_one(a.in, a.bytes, reach)) &&
         (!receives || translate_one(a.out, a.root == kNoRoot ? a.ranks * a.apart : a.bytes, reach)) &&
         translate_one(a.turns, blocks * sizeof *a.turns, reach) &&
         translate_one(a.stopped, sizeof *a.stopped, reach);
}

void send_all(const ExchangeArguments& a, unsigned blocks) {
  for (unsigned block = blocks; block-- > 0;) {
    for (unsigned thread = kThreads; thread-- > 0 && a.turns[block] != kLeft;)
      send_words(a, block, thread, number_in(a, block));
  }
}

bool have_come(const ExchangeArguments& a, unsigned blocks) {
  if (load_system_word(a.stopped) != 0) return true;
  for (unsigned block = 0; block < blocks; ++block) {
    for (std::uint32_t r = 0; r < a.ranks && a.turns[block] != kLeft; ++r) {
      if (r != a.rank && !has_come(a, block, r)) return false;
    }
  }
  return true;
}

void run_exchange(const ExchangeArguments& a, unsigned blocks) {
  ExchangeShared shared{};
  for (unsigned block = blocks; block-- > 0;)
    exchange(Block{block, blocks}, a, shared);
}

}  // namespace heddle::test
