#include "transports/verbs/datagrams.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <random>

namespace heddle::verbs {
namespace {

constexpr std::uint32_t kReceives = 128;
constexpr std::uint32_t kSends = 32;
// Before the content of a datagram there is room for a routing header, whether it has one or not.
constexpr std::size_t kRoutingBytes = 40;
constexpr std::size_t kSlot = 128;
static_assert(kRoutingBytes + kHelloBytes <= kSlot);

}  // namespace

Result<std::unique_ptr<Datagrams>> Datagrams::open(Device& device) {
  std::unique_ptr<Datagrams> datagrams(new Datagrams(device));
  HEDDLE_TRY(datagrams->prepare());
  HEDDLE_TRY(datagrams->start());
  return datagrams;
}

Status Datagrams::prepare() {
  memory_ = Pages((kReceives + kSends) * kSlot);
  if (memory_.data() == nullptr)
    return Status(Code::out_of_memory, device_.name() + ": no memory for datagrams");
  registered_.reset(ibv_reg_mr(device_.domain(), memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE));
  if (registered_ == nullptr) return registration_error(device_.name() + ": memory for datagrams", errno);
  Result<CompletionsPtr> completions = device_.make_completions(kReceives + kSends);
  HEDDLE_TRY(completions.status());
  completions_ = std::move(completions).value();
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = completions_.get();
  wanted.qp_type = IBV_QPT_UD;
  wanted.cap = {.max_send_wr = kSends,
                .max_recv_wr = kReceives,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
  queue_pair_.reset(ibv_create_qp(device_.domain(), &wanted));
  if (queue_pair_ == nullptr)
    return registration_error(device_.name() + ": ibv_create_qp for datagrams", errno);
  return {};
}

Status Datagrams::start() {
  std::random_device random;
  address_.link = device_.gid().kind;
  address_.mtu = device_.mtu();
  address_.lid = device_.lid();
  address_.gid = device_.gid().gid;
  address_.queue_pair = queue_pair_->qp_num;
  address_.key = random() & 0x7fffffff;  // keys with the highest bit are for privileged processes
  address_.instance = (std::uint64_t{random()} << 32) | random();

  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.pkey_index = device_.partition();
  to.port_num = device_.port();
  to.qkey = address_.key;
  int err =
      ibv_modify_qp(queue_pair_.get(), &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  to.qp_state = IBV_QPS_RTR;
  if (err == 0) err = ibv_modify_qp(queue_pair_.get(), &to, IBV_QP_STATE);
  to.qp_state = IBV_QPS_RTS;
  if (err == 0) err = ibv_modify_qp(queue_pair_.get(), &to, IBV_QP_STATE | IBV_QP_SQ_PSN);
  if (err != 0) return system_error(device_.name() + ": starting the queue pair for datagrams", err);
  for (std::uint32_t slot = 0; slot < kReceives; ++slot)
    HEDDLE_TRY(receive(slot));
  for (std::uint32_t slot = kReceives; slot < kReceives + kSends; ++slot)
    free_.push_back(slot);
  return {};
}

Status Datagrams::receive(std::uint32_t slot) {
  ibv_sge place{reinterpret_cast<std::uintptr_t>(memory_.data() + slot * kSlot), kSlot, registered_->lkey};
  ibv_recv_wr request{};
  request.wr_id = slot;
  request.sg_list = &place;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if (const int err = ibv_post_recv(queue_pair_.get(), &request, &bad); err != 0)
    return system_error(device_.name() + ": ibv_post_recv", err);
  return {};
}

Status Datagrams::send(const Address& to, RoutePtr& route, const Hello& hello) {
  if (route == nullptr) {
    ibv_ah_attr way = device_.route_to(to);
    route.reset(ibv_create_ah(device_.domain(), &way));
    if (route == nullptr)
      return system_error(
          fmt::format("{}: no way to rank {} at {}", device_.name(), hello.to, gid_text(to.gid)), errno);
  }
  if (free_.empty()) return {};
  const std::uint32_t slot = free_.back();
  std::byte* const at = memory_.data() + slot * kSlot;
  const auto bytes = encode(hello);
  std::memcpy(at, bytes.data(), bytes.size());
  ibv_sge from{reinterpret_cast<std::uintptr_t>(at), kHelloBytes, registered_->lkey};
  ibv_send_wr request{};
  request.wr_id = slot;
  request.sg_list = &from;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.ud = {route.get(), to.queue_pair, to.key};
  ibv_send_wr* bad = nullptr;
  if (const int err = ibv_post_send(queue_pair_.get(), &request, &bad); err != 0)
    return system_error(device_.name() + ": ibv_post_send of a datagram", err);
  free_.pop_back();
  return {};
}

Status Datagrams::take(const ibv_wc& work, std::optional<Hello>& hello) {
  const auto slot = static_cast<std::uint32_t>(work.wr_id);
  if (work.status != IBV_WC_SUCCESS)
    return Status(Code::system,
                  fmt::format("{}: a datagram failed: {}", device_.name(), ibv_wc_status_str(work.status)));
  if (slot >= kReceives) {
    free_.push_back(slot);
    return {};
  }
  if (work.byte_len >= kRoutingBytes)
    hello = parse_hello(memory_.data() + slot * kSlot + kRoutingBytes, work.byte_len - kRoutingBytes);
  return receive(slot);
}

}  // namespace heddle::verbs
