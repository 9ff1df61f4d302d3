#include <fmt/format.h>

#include "common/device.hpp"
#include "common/side.hpp"

namespace heddle::bench {
namespace {

// What a library does that knows nothing of GPUs, or nothing better: copies to the host, its collective
// there, copies back. The host's memory is pinned and used again, which is the best that can be made of it.
class StagedSide final : public Side {
 public:
  StagedSide(const Job& job, const Options& options, Device& device, std::unique_ptr<Side> inner)
      : job_(job),
        width_(size_of(options.dtype)),
        device_(device),
        inner_(std::move(inner)),
        in_(device.allocate_pinned(options.max_bytes)),
        out_(options.pools() == 2
                 ? device.allocate_pinned(options.receive_bytes(options.max_bytes, job.size()))
                 : nullptr) {}

  const char* name() const override { return "staged"; }
  void allreduce(const void* send, void* receive, std::size_t count) override {
    device_.get(in_, send, count * width_);
    inner_->allreduce(in_, out_, count);
    device_.put(receive, out_, count * width_);
  }
  void reduce(const void* send, void* receive, std::size_t count, int root) override {
    device_.get(in_, send, count * width_);
    inner_->reduce(in_, out_, count, root);
    if (job_.rank() == root) device_.put(receive, out_, count * width_);
  }
  void allgather(const void* send, void* receive, std::size_t count) override {
    device_.get(in_, send, count * width_);
    inner_->allgather(in_, out_, count);
    device_.put(receive, out_, count * width_ * static_cast<std::size_t>(job_.size()));
  }
  void bcast(void* buffer, std::size_t count, int root) override {
    if (job_.rank() == root) device_.get(in_, buffer, count * width_);
    inner_->bcast(in_, count, root);
    if (job_.rank() != root) device_.put(buffer, in_, count * width_);
  }
  std::string algorithm(Kind, std::size_t) override { return "-"; }

  // Blocking collectives alone are compared.
  void start_allreduce(const void*, void*, std::size_t) override { never("a non-blocking allreduce"); }
  void barrier() override { never("a barrier"); }
  void start_bcast(void*, std::size_t, int) override { never("a non-blocking bcast"); }
  bool test() override { never("a test"); }
  void finish() override { never("a wait"); }
  void send(const void*, std::size_t, int) override { never("a message"); }
  void receive(void*, std::size_t, int) override { never("a message"); }
  void exchange(std::span<void* const>, std::span<void* const>, std::size_t, int) override {
    never("messages");
  }

 private:
  [[noreturn]] void never(const char* what) const { job_.abort(fmt::format("{} is not staged", what)); }

  const Job& job_;
  std::size_t width_;
  Device& device_;
  std::unique_ptr<Side> inner_;
  void* in_;
  void* out_;
};

}  // namespace

std::unique_ptr<Side> make_staged_side(const Job& job, const Options& options, Device& device,
                                       std::unique_ptr<Side> inner) {
  return std::make_unique<StagedSide>(job, options, device, std::move(inner));
}

}  // namespace heddle::bench
