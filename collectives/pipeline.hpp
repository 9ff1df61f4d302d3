// Software pipelines: turns stages with iteration windows into prologue, rolled steady state and epilogue.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "schedule/builder.hpp"

namespace heddle {

// A loop of which every stage is active in a window of iterations of its own. Emitted as few straight pieces
// and repeats: the steps do not grow with the number of iterations.
//
// Why this cannot deadlock under rendezvous sends, as the algorithms here use it: iterations are numbered
// alike on all ranks; in each, receives are opened before the wait and sends after it or before it; a message
// sent in iteration i meets a receive opened in iteration i+1 or earlier, and no wait of iteration i needs a
// send opened after the wait of iteration i-1. Or it meets one opened in iteration i or earlier, and no wait
// of iteration i needs a send opened in iteration i. So, by induction over i, every rank passes its waits of
// iteration i.
class Pipeline {
 public:
  using Iteration = std::int64_t;
  // Writes exactly one step, or, of an `act` without a scratch unit, always as many. From one iteration to
  // the next its chunk must move by the pipeline's stride (or carry kFixed), and its scratch unit, where it
  // has one, by one, modulo the schedule's scratch units.
  using Emit = std::function<void(Builder&, Iteration)>;

  struct Window {
    Iteration first;
    Iteration last;  // one past the last
    bool contains(Iteration i) const { return first <= i && i < last; }
  };
  // The operation that `stage` opened `lag` iterations ago.
  struct Need {
    int stage;
    int lag;
  };

  explicit Pipeline(std::int32_t stride) : stride_(stride) {}

  // Stages run in the order in which they are added. `rotates`: the step has a scratch unit that moves.
  int open(Window window, Emit emit, bool rotates = false);  // a send or receive; returns the stage's number
  void act(Window window, Emit emit, bool rotates = false);  // a copy or reduction
  // Waits until all operations named in `needs` that exist are complete (and with them all opened before).
  // Stages of `needs` may be added later than the wait when their lag is at least 1.
  int wait_for(std::vector<Need> needs);    // returns the stage's number
  void also_wait_for(int wait, Need need);  // adds to that stage

  void emit(Builder& builder) const;

 private:
  struct Stage {
    enum class Kind : std::uint8_t { open, act, wait } kind;
    Window window;
    Emit emit;
    bool rotates;
    std::vector<Need> needs;
  };
  static constexpr std::int64_t kInactive = -1;

  std::int64_t opened_after(Need need, Iteration i, std::size_t wait_stage) const;
  void signature(Iteration i, std::vector<std::int64_t>& result) const;
  std::vector<Iteration> boundaries() const;
  void emit_segment(Builder& builder, Iteration from, Iteration to,
                    const std::vector<std::int64_t>& what) const;

  std::int32_t stride_;
  std::vector<Stage> stages_;
};

}  // namespace heddle
