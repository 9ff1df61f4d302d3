#include "machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace heddle::test::ptx {
namespace {

constexpr unsigned kAtOnce = 40;       // blocks
constexpr unsigned kMostInARow = 400;  // instructions of a thread
// Turns of one warp's threads in a row, by the launch: one, for all orders, and mostly many, whose registers
// lie in the cache.
constexpr unsigned kMostOfAWarp[] = {1, 16, 512, 512, 512, 512, 512, 512};

}  // namespace

Machine::Machine(const Program& program, const Launch& launch, std::vector<Block>& blocks, std::uint64_t seed)
    : program_(program), launch_(launch), random_(seed), to_run_(launch.blocks) {
  const unsigned at_once = std::min(launch.blocks, kAtOnce);
  if (blocks.size() < at_once) blocks.resize(at_once);
  running_ = std::span(blocks).first(at_once);
  if (launch.arguments.size() != launch.kernel->parameter_bytes)
    throw Error(fmt::format("{} has {} bytes of parameters, and was given {}", launch.kernel->name,
                            launch.kernel->parameter_bytes, launch.arguments.size()));
  std::iota(to_run_.begin(), to_run_.end(), 0U);
  std::shuffle(to_run_.begin(), to_run_.end(), random_);
  most_of_a_warp_ = kMostOfAWarp[random_() % std::size(kMostOfAWarp)];
}

void Machine::begin(Block& block, unsigned number) {
  const Kernel& kernel = *launch_.kernel;
  block.number = number;
  block.machine = this;
  block.waiting = 0;
  block.ended = 0;
  block.shared.begin(kernel.shared_bytes, launch_.threads);
  block.local.assign(kernel.local_bytes * launch_.threads, std::byte{0xA5});
  if (block.registers.size() < kernel.registers * launch_.threads)
    block.registers.resize(kernel.registers * launch_.threads);
  block.lanes.resize(launch_.threads);
  for (unsigned t = 0; t < launch_.threads; ++t) {
    std::uint64_t* registers = block.registers.data() + t * kernel.registers;
    for (const auto& [name, slot] : kernel.special) {
      if (name == "%tid.x")
        registers[slot] = t;
      else if (name == "%ctaid.x")
        registers[slot] = number;
      else if (name == "%nctaid.x")
        registers[slot] = launch_.blocks;
      else
        throw Error(fmt::format("{} uses {}, which is not known here", kernel.name, name));
    }
    block.lanes[t] = {{registers, kernel.constants.data()}, 0, State::ready, t, &block};
  }
}

void Machine::run() {
  for (Block& block : running_) {
    begin(block, to_run_.back());
    to_run_.pop_back();
  }
  std::vector<Block*> active;
  for (Block& block : running_)
    active.push_back(&block);
  for (std::uint64_t turn = 0; !active.empty(); ++turn) {
    if (turn == launch_.most_turns) throw Error(fmt::format("{} does not end", launch_.kernel->name));
    Lane& lane = next(active);
    run_some(lane);
    Block& block = *lane.block;
    if (block.ended < launch_.threads) continue;
    if (to_run_.empty()) {
      std::erase(active, &block);
    } else {
      begin(block, to_run_.back());
      to_run_.pop_back();
    }
  }
}

// Of the warp that had the last turn as long as that has more in a row, then of any.
Lane& Machine::next(std::span<Block* const> active) {
  if (left_of_warp_ > 0) {
    --left_of_warp_;
    if (Lane* lane = any_ready(warp_); lane != nullptr) return *lane;
  }
  const std::size_t first = random_() % active.size();
  for (std::size_t k = 0; k < active.size(); ++k) {
    Lane* lane = any_ready(active[(first + k) % active.size()]->lanes);
    if (lane == nullptr) continue;
    warp_ = std::span(lane->block->lanes).subspan(lane->thread / kWarp * kWarp, kWarp);
    left_of_warp_ = random_() % most_of_a_warp_;
    return *lane;
  }
  fail_waiting();
}

Lane* Machine::any_ready(std::span<Lane> lanes) {
  const std::size_t first = random_() % lanes.size();
  for (std::size_t k = first; k < lanes.size(); ++k) {
    if (lanes[k].state == State::ready) return &lanes[k];
  }
  for (std::size_t k = 0; k < first; ++k) {
    if (lanes[k].state == State::ready) return &lanes[k];
  }
  return nullptr;
}

void Machine::run_some(Lane& lane) {
  const std::vector<Instruction>& code = launch_.kernel->code;
  for (std::uint64_t left = 1 + random_() % kMostInARow; left > 0; --left) {
    const Instruction& instruction = code[lane.at];
    const bool is_done = ((lane.at_slot(instruction.guard) & 1U) != 0) != instruction.unless;
    if (!is_done) {
      ++lane.at;
    } else if (instruction.kind == Kind::step) {
      instruction.step(lane, instruction);
      ++lane.at;
    } else if (instruction.kind == Kind::branch) {
      lane.at = instruction.target;
    } else if (!do_one(lane, instruction)) {
      return;
    }
  }
}

bool Machine::do_one(Lane& lane, const Instruction& instruction) {
  Block& block = *lane.block;
  switch (instruction.kind) {
    case Kind::end:
      lane.state = State::ended;
      ++block.ended;
      if (block.waiting > 0 && block.waiting + block.ended == launch_.threads) release(block);
      return false;
    case Kind::pause:
      ++lane.at;
      return false;
    case Kind::block_barrier:
      lane.state = State::at_barrier;
      ++block.waiting;
      if (block.waiting + block.ended == launch_.threads) release(block);
      return false;
    default:
      lane.state = State::in_warp;
      meet_warp(lane, instruction);
      return false;
  }
}

void Machine::release(Block& block) {
  block.waiting = 0;
  block.shared.order_all();
  for (Lane& lane : block.lanes) {
    if (lane.state != State::at_barrier) continue;
    lane.state = State::ready;
    ++lane.at;
  }
}

// Once all lanes that the mask names have come.
void Machine::meet_warp(Lane& lane, const Instruction& instruction) {
  Block& block = *lane.block;
  constexpr auto slot_of_mask = [](Kind kind) {
    return kind == Kind::warp_barrier ? 0 : kind == Kind::ballot ? 2 : 5;
  };
  const auto mask =
      static_cast<std::uint32_t>(lane.at_slot(instruction.slots[slot_of_mask(instruction.kind)]));
  const unsigned first = lane.thread / kWarp * kWarp;
  if ((mask >> (lane.thread - first) & 1U) == 0) fail(lane, "is not in the mask by which its warp meets");
  for (unsigned l = 0; l < kWarp; ++l) {
    if ((mask >> l & 1U) == 0) continue;
    const Lane& other = block.lanes[first + l];
    if (other.state == State::ended || (other.state == State::at_barrier))
      fail(lane, fmt::format("waits for thread {} of its warp, which does not come", other.thread));
    if (other.state != State::in_warp || other.at != lane.at) return;
  }
  switch (instruction.kind) {
    case Kind::warp_barrier:
      block.shared.order_warp(first / kWarp);
      break;
    case Kind::ballot:
      ballot(block, first, mask, instruction);
      break;
    default:
      if (mask != 0xFFFFFFFFU) fail(lane, "shuffles in a part of its warp, which is not known here");
      shuffle(block, first, instruction);
  }
  for (unsigned l = 0; l < kWarp; ++l) {
    if ((mask >> l & 1U) == 0) continue;
    block.lanes[first + l].state = State::ready;
    ++block.lanes[first + l].at;
  }
}

void Machine::shuffle(Block& block, unsigned first, const Instruction& instruction) {
  const auto& slots = instruction.slots;  // the value, whether it is another's, from, by, the clamp
  std::uint32_t values[kWarp];
  for (unsigned l = 0; l < kWarp; ++l)
    values[l] = static_cast<std::uint32_t>(block.lanes[first + l].at_slot(slots[2]));
  for (unsigned l = 0; l < kWarp; ++l) {
    Lane& lane = block.lanes[first + l];
    const auto by = static_cast<std::uint32_t>(lane.at_slot(slots[3])) & 0x1FU;
    const auto clamp = static_cast<std::uint32_t>(lane.at_slot(slots[4]));
    const std::uint32_t segment = clamp >> 8 & 0x1FU;
    const int limit = static_cast<int>((l & segment) | (clamp & 0x1FU & ~segment));
    const bool is_up = instruction.kind == Kind::shuffle_up;
    int from = static_cast<int>((l & segment) | (by & ~segment));
    if (is_up) from = static_cast<int>(l) - static_cast<int>(by);
    if (instruction.kind == Kind::shuffle_xor) from = static_cast<int>(l ^ by);
    const bool is_there = is_up ? from >= limit : from <= limit;
    if (!is_there) from = static_cast<int>(l);
    lane.at_register(slots[0]) = values[from];
    lane.at_register(slots[1]) = is_there ? 1 : 0;
  }
}

void Machine::ballot(Block& block, unsigned first, std::uint32_t mask, const Instruction& instruction) {
  std::uint32_t votes = 0;
  for (unsigned l = 0; l < kWarp; ++l) {
    const bool votes_for =
        (mask >> l & 1U) != 0 && (block.lanes[first + l].at_slot(instruction.slots[1]) & 1U) != 0;
    if (votes_for) votes |= 1U << l;
  }
  for (unsigned l = 0; l < kWarp; ++l) {
    if ((mask >> l & 1U) != 0) block.lanes[first + l].at_register(instruction.slots[0]) = votes;
  }
}

// ---- Memory

void Machine::check(const Lane& lane, std::uint64_t at, std::size_t bytes, std::size_t size,
                    const char* space) const {
  if (at % bytes != 0)
    fail(lane, fmt::format("uses {} bytes of {} at {:#x}, which is not aligned to them", bytes, space, at));
  if (at > size || bytes > size - at)
    fail(lane, fmt::format("uses {} bytes at {} of {}, which has {}", bytes, at, space, size));
}

std::byte* Machine::global(const Lane& lane, std::uint64_t at, std::size_t bytes) {
  const auto holds = [&](const Range& range) {
    return at >= range.begin && at - range.begin + bytes <= range.bytes;
  };
  if (launch_.memory.empty() || !holds(launch_.memory[last_range_])) {
    const auto found = std::find_if(launch_.memory.begin(), launch_.memory.end(), holds);
    if (found == launch_.memory.end())
      fail(lane, fmt::format("uses {} bytes at {:#x}, which the kernel was not given", bytes, at));
    last_range_ = static_cast<std::size_t>(found - launch_.memory.begin());
  }
  if (at % bytes != 0)
    fail(lane, fmt::format("uses {} bytes at {:#x}, which is not aligned to them", bytes, at));
  return reinterpret_cast<std::byte*>(at);
}

std::byte* Machine::shared(const Lane& lane, std::uint64_t at, std::size_t bytes, Access access) {
  SharedMemory& memory = lane.block->shared;
  check(lane, at, bytes, memory.bytes(), "shared memory");
  const std::string wrong = memory.use(lane.thread, at, bytes, access);
  if (!wrong.empty()) fail(lane, wrong);
  return memory.at(at);
}

std::byte* Machine::local(const Lane& lane, std::uint64_t at, std::size_t bytes) {
  const std::size_t size = launch_.kernel->local_bytes;
  check(lane, at, bytes, size, "its own memory");
  return lane.block->local.data() + lane.thread * size + at;
}

const std::byte* Machine::parameter(const Lane& lane, std::uint64_t at, std::size_t bytes) const {
  check(lane, at, bytes, launch_.arguments.size(), "the parameters");
  return launch_.arguments.data() + at;
}

void Machine::fail(const Lane& lane, const std::string& what) const {
  throw Error(fmt::format("{}: thread {} of block {} {} ({})", launch_.kernel->name, lane.thread,
                          lane.block->number, what, program_.place(launch_.kernel->code[lane.at].line)));
}

void Machine::fail_waiting() const {
  for (const Block& block : running_) {
    for (const Lane& lane : block.lanes) {
      if (lane.state == State::at_barrier || lane.state == State::in_warp) fail(lane, "waits for ever");
    }
  }
  throw Error(fmt::format("{} waits for ever", launch_.kernel->name));
}

}  // namespace heddle::test::ptx
