// The GPU's part of sums by GPUDirect RDMA, on one GPU: ranks that are threads run schedules in memory that a
// network would reach, and streams of heddle's do what there is to do between messages. The network is a
// double: it moves bytes by copies in streams of its own, which nothing orders but that heddle waits. As a
// plain program: direct_check LIBCUDA [--short].
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <list>
#include <memory>
#include <vector>

#include "collectives/collectives.hpp"
#include "cuda_streams.hpp"
#include "device/gpu_direct.hpp"
#include "node_ranks.hpp"
#include "transports/loopback/loopback.hpp"

namespace heddle::test {
namespace {

constexpr unsigned kLongest = 60;  // seconds for a group of ranks

// Messages between threads, whose device's side is copies of this class's own.
class WireTransport final : public Transport {
 public:
  WireTransport(const TestDriver& driver, std::unique_ptr<Transport> between)
      : driver_(driver), stream_(driver, 0), between_(std::move(between)) {}

  const TransportCapabilities& capabilities() const override { return between_->capabilities(); }
  Result<DeviceReach> add_memory(const DeviceMemory& memory) override {
    has_dmabuf = memory.dmabuf >= 0;
    return DeviceReach{1, 1, 1};
  }
  Status send(int peer, std::uint32_t tag, const void* data, std::size_t bytes, Ticket& ticket) override {
    Message& message = open(bytes, ticket, nullptr);
    if (bytes > 0) {
      driver_.set_current(driver_.primary(0));
      driver_.call<PFN_cuMemcpyDtoHAsync_v3020>("cuMemcpyDtoHAsync_v2", message.content.data(),
                                                reinterpret_cast<CUdeviceptr>(data), bytes, stream_.get());
      stream_.wait();
    }
    return between_->send(peer, tag, message.content.data(), bytes, message.own);
  }
  Status recv(int peer, std::uint32_t tag, void* data, std::size_t bytes, Ticket& ticket) override {
    Message& message = open(bytes, ticket, data);
    return between_->recv(peer, tag, message.content.data(), bytes, message.own);
  }
  Status progress() override {
    const Status status = between_->progress();
    for (auto at = messages_.begin(); at != messages_.end();) {
      if (!at->own.done) {
        ++at;
        continue;
      }
      if (at->to != nullptr && !at->content.empty()) {
        driver_.set_current(driver_.primary(0));
        driver_.call<PFN_cuMemcpyHtoDAsync_v3020>(
            "cuMemcpyHtoDAsync_v2", reinterpret_cast<CUdeviceptr>(at->to),
            static_cast<const void*>(at->content.data()), at->content.size(), stream_.get());
        stream_.wait();
      }
      at->ticket->done = true;
      at = messages_.erase(at);
    }
    return status;
  }
  void cancel(Ticket& ticket) override {
    const auto at = std::find_if(messages_.begin(), messages_.end(),
                                 [&](const Message& m) { return m.ticket == &ticket; });
    if (at == messages_.end()) return;
    between_->cancel(at->own);
    messages_.erase(at);
  }
  bool peer_is_gone(int /*peer*/) const override { return false; }

  bool has_dmabuf = false;

 private:
  struct Message {
    Ticket own;
    Ticket* ticket;
    std::vector<std::byte> content;
    void* to;  // null: it is sent
  };
  Message& open(std::size_t bytes, Ticket& ticket, void* to) {
    return messages_.emplace_back(Message{{}, &ticket, std::vector<std::byte>(bytes), to});
  }

  const TestDriver& driver_;
  const TestStream stream_;
  const std::unique_ptr<Transport> between_;
  std::list<Message> messages_;
};

struct Algorithm {
  const char* name;
  Schedule (*build)(const TopologyView& topology, std::int32_t rank, const Shape& shape);
  Shape shape;
};
const Algorithm kAlgorithms[] = {{"ring", allreduce::ring, {0, 2, 4}},
                                 {"recursive_doubling", allreduce::recursive_doubling, {0, 2, 1}},
                                 {"rabenseifner", allreduce::rabenseifner, {0, 2, 1}},
                                 {"knomial", allreduce::knomial, {0, 3, 1}}};

// Small enough to be added exactly.
float given(int rank, std::size_t i) {
  return static_cast<float>((static_cast<std::size_t>(rank) + 1) * (i % 1009 + 1));
}

class Trial {
 public:
  Trial(NodeRank& rank, LoopbackHub& hub, std::size_t most)
      : rank_(rank),
        wire_(rank.driver(), hub.transport(rank.rank())),
        buffer_(rank.driver(), Memory::device, 256) {
    const Result<gpu::Place> place = rank.gpu().present() ? rank.gpu().place(buffer_.data())
                                                          : Status(Code::unsupported, "there is no CUDA");
    Result<std::unique_ptr<GpuDirect>> made = place.status();
    // Two vectors of scratch, and a rest for rounding, are enough for all of the above.
    if (place.ok()) made = GpuDirect::make(rank.gpu(), place.value(), wire_, {most, 2 * most + 65536});
    status = made.status();
    if (made.ok()) direct_ = std::move(made).value();
    ports_.transport_of.assign(static_cast<std::size_t>(rank.size()), &wire_);
    ports_.transports = {&wire_};
  }
  bool has_dmabuf() const { return wire_.has_dmabuf; }

  // Of all ranks, in place. Whether it is right.
  bool sum(const Algorithm& algorithm, std::size_t count, std::uint32_t number) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = given(rank_.rank(), i);
    const std::size_t bytes = count * sizeof(float);
    std::byte* const at = direct_->at(number);
    const TestDriver& driver = rank_.driver();
    driver.set_current(driver.primary(0));
    driver.put(reinterpret_cast<CUdeviceptr>(at), values.data(), bytes);
    const TopologyView topology = TopologyView::flat(rank_.size());
    auto schedule =
        std::make_shared<const Schedule>(algorithm.build(topology, rank_.rank(), algorithm.shape));
    Execution execution(std::move(schedule), ports_);
    Binding binding;
    binding.input = binding.data = at;
    binding.count = count;
    binding.element_bytes = sizeof(float);
    binding.sequence = number;
    binding.local = direct_->work_on(number, DType::f32, Op::sum);
    status = execution.start(binding);
    for (bool done = false; status.ok() && !done;)
      status = execution.poll(&done);
    if (status.ok()) status = direct_->failure();
    if (!status.ok()) {
      // At once: the others may wait for this rank until the alarm.
      std::fprintf(stderr, "  rank %d of %d, %s: %s\n", rank_.rank(), rank_.size(), algorithm.name,
                   status.message().c_str());
      return false;
    }
    driver.call<PFN_cuMemcpyDtoH_v3020>("cuMemcpyDtoH_v2", static_cast<void*>(values.data()),
                                        reinterpret_cast<CUdeviceptr>(at), bytes);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      float wanted = 0;
      for (int r = 0; r < rank_.size(); ++r)
        wanted += given(r, i);
      wrong += values[i] == wanted ? 0 : 1;
    }
    if (wrong > 0)
      std::printf("  wrong: rank %d of %d, %s: %zu of %zu floats\n", rank_.rank(), rank_.size(),
                  algorithm.name, wrong, count);
    return wrong == 0;
  }

  Status status;

 private:
  NodeRank& rank_;
  WireTransport wire_;
  const TestMemory buffer_;
  std::unique_ptr<GpuDirect> direct_;
  Ports ports_;
};

bool check_rank(NodeRank& rank, LoopbackHub& hub, bool brief) {
  alarm(kLongest);
  const std::size_t most = brief ? 100'003 : 3'000'017;
  Trial trial(rank, hub, most * sizeof(float));
  bool right = trial.status.ok();
  if (!right)
    std::fprintf(stderr, "  rank %d of %d: %s\n", rank.rank(), rank.size(), trial.status.message().c_str());
  rank.barrier();
  std::uint32_t number = 0;
  for (const Algorithm& algorithm : kAlgorithms) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{4099}, most})
      right = right && trial.sum(algorithm, count, number++);
  }
  if (rank.rank() == 0) std::printf("dmabuf of GPU memory: %s\n", trial.has_dmabuf() ? "yes" : "no");
  rank.barrier();
  return right;
}

int check(const char* library, bool brief) {
  bool right = true;
  for (const int size : {2, 3, 4}) {
    LoopbackHub hub(size, {});
    const bool threads =
        on_threads(library, size, 0, [&](NodeRank& rank) { return check_rank(rank, hub, brief); });
    std::printf("sums in memory for networks, %d threads: %s\n", size, threads ? "right" : "WRONG");
    right = right && threads;
  }
  return right ? 0 : 1;
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) {
  return heddle::test::run_check(argc, argv, heddle::test::check);
}
