#include "transports/verbs/reach.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <vector>

#include "base/median.hpp"
#include "transports/verbs/queue_pair.hpp"

namespace heddle::verbs {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::size_t kMostBytes = std::size_t{512} << 10;
constexpr int kMostRounds = 9;
// Beyond this it is measured once.
constexpr std::chrono::milliseconds kBudget{20};
// What an access that is not answered takes: the device tells of others itself.
constexpr std::chrono::seconds kLongest{5};

// A connection of the device with itself.
class OwnConnection {
 public:
  static Result<OwnConnection> make(Device& device) {
    OwnConnection made(device);
    Result<CompletionsPtr> completions = device.make_completions(4);
    HEDDLE_TRY(completions.status());
    made.completions_ = std::move(completions).value();
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = made.completions_.get();
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {
        .max_send_wr = 2, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    made.queue_pair_.reset(ibv_create_qp(device.domain(), &wanted));
    if (made.queue_pair_ == nullptr)
      return registration_error(device.name() + ": ibv_create_qp for a trial", errno);
    HEDDLE_TRY(made.bring_up());
    return made;
  }

  // Nanoseconds. Both within one device's memories; `bytes` at least 1.
  Result<double> write(std::uintptr_t to, std::uint32_t to_key, std::uintptr_t from, std::uint32_t from_key,
                       std::size_t bytes) {
    ibv_sge source{from, static_cast<std::uint32_t>(bytes), from_key};
    ibv_send_wr request{};
    request.opcode = IBV_WR_RDMA_WRITE;
    request.sg_list = &source;
    request.num_sge = 1;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma = {.remote_addr = to, .rkey = to_key};
    ibv_send_wr* bad = nullptr;
    const Steady::time_point begin = Steady::now();
    if (const int err = ibv_post_send(queue_pair_.get(), &request, &bad); err != 0)
      return Status(Code::unsupported, std::strerror(err));
    ibv_wc work{};
    int n = 0;
    while ((n = ibv_poll_cq(completions_.get(), 1, &work)) == 0) {
      if (Steady::now() - begin > kLongest)
        return Status(Code::unsupported, fmt::format("not answered for {} s", kLongest.count()));
    }
    if (n < 0 || work.status != IBV_WC_SUCCESS)
      return Status(Code::unsupported, n < 0 ? "ibv_poll_cq failed" : ibv_wc_status_str(work.status));
    return std::chrono::duration<double, std::nano>(Steady::now() - begin).count();
  }

 private:
  explicit OwnConnection(Device& device) : device_(&device) {}

  Status bring_up() {
    constexpr std::uint8_t kAckTimeout = 14;  // 67 ms
    ibv_qp_attr to{};
    to.path_mtu = static_cast<ibv_mtu>(device_->mtu());
    to.dest_qp_num = queue_pair_->qp_num;
    to.ah_attr = device_->route_to_itself();
    to.timeout = kAckTimeout;
    to.retry_cnt = 3;
    int err = prepare_queue_pair(*queue_pair_, *device_);
    if (err == 0) err = connect_queue_pair(*queue_pair_, to);
    if (err == 0) return {};
    return Status(Code::unsupported,
                  fmt::format("{}: connecting it to itself: {}", device_->name(), std::strerror(err)));
  }

  Device* device_;
  CompletionsPtr completions_;
  QueuePairPtr queue_pair_;
};

std::vector<std::byte> random_bytes(std::size_t bytes) {
  std::mt19937_64 random(bytes);
  std::vector<std::byte> all(bytes);
  for (std::byte& one : all)
    one = static_cast<std::byte>(random());
  return all;
}

// Source and target in the host's memory, registered as one.
class HostMemory {
 public:
  HostMemory(Device& device, std::size_t bytes) : bytes_(bytes), sent_(random_bytes(bytes)) {
    memory_ = sent_;
    memory_.resize(2 * bytes);
    registered_.reset(ibv_reg_mr(device.domain(), memory_.data(), memory_.size(),
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  }
  bool registered() const { return registered_ != nullptr; }
  std::uintptr_t source() const { return reinterpret_cast<std::uintptr_t>(memory_.data()); }
  std::uintptr_t target() const { return source() + bytes_; }
  std::uint32_t local() const { return registered_->lkey; }
  std::uint32_t remote() const { return registered_->rkey; }
  const std::vector<std::byte>& sent() const { return sent_; }
  bool arrived() const { return std::memcmp(memory_.data() + bytes_, sent_.data(), bytes_) == 0; }
  void forget() { std::memset(memory_.data() + bytes_, 0, bytes_); }

 private:
  std::size_t bytes_;
  std::vector<std::byte> sent_;
  std::vector<std::byte> memory_;
  MemoryPtr registered_;
};

Status refused(const Device& device, const char* what, const std::string& why) {
  return Status(Code::unsupported,
                fmt::format("{} cannot {} the GPU's memory: {}", device.name(), what, why));
}

}  // namespace

Result<DeviceReach> measure_reach(Device& device, const DeviceMemory& memory, const MemoryKeys& keys) {
  Result<OwnConnection> made = OwnConnection::make(device);
  HEDDLE_TRY(made.status());
  OwnConnection& connection = made.value();
  const std::size_t bytes = std::min(memory.bytes, kMostBytes);
  HostMemory host(device, bytes);
  if (!host.registered())
    return registration_error(fmt::format("{}: {} bytes for a trial", device.name(), 2 * bytes), errno);
  const auto there = reinterpret_cast<std::uintptr_t>(memory.begin);

  std::vector<double> within;
  std::vector<double> writes;
  std::vector<double> reads;
  const Steady::time_point begin = Steady::now();
  // The first round is not counted where there is another one.
  for (int round = 0; round < kMostRounds && (round == 0 || Steady::now() - begin < kBudget); ++round) {
    const Result<double> in =
        connection.write(host.target(), host.remote(), host.source(), host.local(), bytes);
    if (!in.ok())
      return Status(Code::unsupported,
                    fmt::format("{} cannot write to itself: {}", device.name(), in.status().message()));
    host.forget();
    const Result<double> write = connection.write(there, keys.remote, host.source(), host.local(), bytes);
    if (!write.ok()) return refused(device, "write", write.status().message());
    const Result<double> read = connection.write(host.target(), host.remote(), there, keys.local, bytes);
    if (!read.ok()) return refused(device, "read", read.status().message());
    if (round == 1) {
      for (std::vector<double>* all : {&within, &writes, &reads})
        all->clear();
    }
    within.push_back(in.value());
    writes.push_back(write.value());
    reads.push_back(read.value());
  }
  if (!host.arrived()) return refused(device, "read", "what it has read is not what it wrote there");
  // What the device finds there the GPU must find as well.
  std::vector<std::byte> seen(bytes);
  memory.access->read(seen.data(), memory.begin, bytes);
  if (seen != host.sent()) return refused(device, "write", "the GPU does not see what it wrote there");
  const double per_byte = 1.0 / static_cast<double>(bytes);
  return DeviceReach{median(within) * per_byte, median(reads) * per_byte, median(writes) * per_byte};
}

}  // namespace heddle::verbs
