#include "transports/verbs/device.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace heddle::verbs {
namespace {

// Of memory that a device uses a child gets copies, as of Linux 5.12. Before that either side of a fork may
// be left with pages that the device does not use, without an error, unless the library keeps such memory
// from children: which it does only from before the first device on.
void keep_from_children() {
  // EINVAL: another user of the library has been there before, without.
  if (ibv_is_fork_initialized() == IBV_FORK_DISABLED) static_cast<void>(ibv_fork_init());
}

// Devices as they are listed; freed at the end of the search.
class DeviceList {
 public:
  DeviceList() {
    keep_from_children();
    list_ = ibv_get_device_list(&count_);
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  ~DeviceList() {
    if (list_ != nullptr) ibv_free_device_list(list_);
  }
  std::vector<ibv_device*> devices() const {
    return list_ == nullptr ? std::vector<ibv_device*>{} : std::vector<ibv_device*>(list_, list_ + count_);
  }

 private:
  int count_ = 0;
  ibv_device** list_ = nullptr;
};

std::string names_of(const std::vector<ibv_device*>& devices) {
  std::string names;
  for (ibv_device* device : devices)
    names += (names.empty() ? "" : ", ") + std::string(ibv_get_device_name(device));
  return names;
}

// Comparable, not bits a second: width and speed are codes that grow with what they stand for.
unsigned rate(const ibv_port_attr& port) {
  return unsigned{port.active_speed} * 16 + port.active_width;
}

LinkKind kind_of(std::uint32_t type) {
  if (type == IBV_GID_TYPE_ROCE_V2) return LinkKind::roce_v2;
  return type == IBV_GID_TYPE_ROCE_V1 ? LinkKind::roce_v1 : LinkKind::infiniband;
}

}  // namespace

Status registration_error(const std::string& what, int err) {
  if (err != ENOMEM && err != EAGAIN) return system_error(what, err);
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string now =
      limit.rlim_cur == RLIM_INFINITY ? "unlimited" : fmt::format("{} KiB", limit.rlim_cur >> 10);
  return Status(
      Code::out_of_memory,
      fmt::format(
          "{}: the system gives no more memory to devices (the limit of locked memory, ulimit -l, is {}: "
          "raise it)",
          what, now));
}

Result<std::unique_ptr<Device>> Device::open(const NetworkOptions& options) {
  const std::string& name = options.verbs_device;
  const Result<DeviceName> wanted = parse_device_name(name);
  HEDDLE_TRY(wanted.status());
  const DeviceList list;
  const std::vector<ibv_device*> devices = list.devices();
  if (devices.empty()) return Status(Code::unsupported, "libibverbs finds no RDMA device on this machine");

  std::unique_ptr<Device> best;
  std::string reasons;
  for (ibv_device* each : devices) {
    if (!wanted.value().name.empty() && wanted.value().name != ibv_get_device_name(each)) continue;
    std::unique_ptr<Device> device(new Device);
    const Status status = device->use(each, wanted.value());
    if (!status.ok()) {
      reasons += (reasons.empty() ? "" : "; ") + status.message();
    } else if (best == nullptr || rate(device->port_state_) > rate(best->port_state_)) {
      best = std::move(device);
    }
  }
  if (best == nullptr && reasons.empty())
    return Status(Code::unsupported,
                  fmt::format("HEDDLE_VERBS_DEVICE={}: there is no such device; there are: {}", name,
                              names_of(devices)));
  if (best == nullptr) return Status(Code::unsupported, reasons);
  HEDDLE_TRY(best->find_gid(options.verbs_gid));
  HEDDLE_TRY(best->find_partition(options.verbs_pkey));
  best->traffic_class_ = static_cast<std::uint8_t>(options.verbs_traffic_class);
  best->service_level_ = static_cast<std::uint8_t>(options.verbs_sl);
  HEDDLE_TRY(best->prepare(options));
  return best;
}

Status Device::use(ibv_device* device, const DeviceName& wanted) {
  name_ = ibv_get_device_name(device);
  context_.reset(ibv_open_device(device));
  if (context_ == nullptr)
    return Status(Code::unsupported, fmt::format("{} cannot be opened: {}", name_, std::strerror(errno)));
  if (const int err = ibv_query_device(context_.get(), &limits_); err != 0)
    return Status(Code::unsupported,
                  fmt::format("{} cannot be asked what it can do: {}", name_, std::strerror(err)));
  return find_port(wanted.port);
}

Status Device::find_port(int wanted) {
  if (wanted > limits_.phys_port_cnt)
    return Status(Code::unsupported, fmt::format("HEDDLE_VERBS_DEVICE: {} has no port {}; it has {}", name_,
                                                 wanted, limits_.phys_port_cnt));
  std::string states;
  for (int port = 1; port <= limits_.phys_port_cnt; ++port) {
    if (wanted != 0 && port != wanted) continue;
    ibv_port_attr state{};
    if (ibv_query_port(context_.get(), static_cast<std::uint8_t>(port), &state) != 0) continue;
    if (state.state != IBV_PORT_ACTIVE) {
      states += fmt::format("{}{} port {} is {}", states.empty() ? "" : "; ", name_, port,
                            ibv_port_state_str(state.state));
      continue;
    }
    if (port_ != 0 && rate(state) <= rate(port_state_)) continue;
    port_ = static_cast<std::uint8_t>(port);
    port_state_ = state;
  }
  if (port_ == 0)
    return Status(Code::unsupported,
                  states.empty() ? fmt::format("{} has no port that answers", name_) : states);
  name_ += fmt::format(" port {}", port_);
  return {};
}

Status Device::find_gid(int wanted) {
  std::vector<ibv_gid_entry> found(static_cast<std::size_t>(std::max(port_state_.gid_tbl_len, 1)) *
                                   limits_.phys_port_cnt);
  const ssize_t count = ibv_query_gid_table(context_.get(), found.data(), found.size(), 0);
  if (count < 0)
    return Status(Code::unsupported, fmt::format("{}: its GIDs cannot be read: {}", name_,
                                                 std::strerror(static_cast<int>(-count))));
  std::vector<GidEntry> table;
  for (const ibv_gid_entry& entry : found) {
    if (table.size() == static_cast<std::size_t>(count) || entry.port_num != port_) continue;
    GidEntry& mine = table.emplace_back();
    mine.index = entry.gid_index;
    mine.kind = kind_of(entry.gid_type);
    std::memcpy(mine.gid.data(), entry.gid.raw, mine.gid.size());
  }
  const Result<GidEntry> chosen = choose_gid(table, wanted, name_);
  HEDDLE_TRY(chosen.status());
  gid_ = chosen.value();
  return {};
}

Status Device::find_partition(int wanted) {
  std::vector<std::uint16_t> keys(port_state_.pkey_tbl_len);
  for (std::size_t index = 0; index < keys.size(); ++index) {
    __be16 key = 0;
    if (ibv_query_pkey(context_.get(), port_, static_cast<int>(index), &key) == 0) keys[index] = ntohs(key);
  }
  const Result<std::uint16_t> chosen = choose_partition(keys, wanted, name_);
  HEDDLE_TRY(chosen.status());
  partition_ = chosen.value();
  if (wanted >= 0) partition_text_ = fmt::format(", partition {:#x}", keys[partition_]);
  return {};
}

Status Device::prepare(const NetworkOptions& options) {
  domain_.reset(ibv_alloc_pd(context_.get()));
  if (domain_ == nullptr) return registration_error(name_ + ": ibv_alloc_pd", errno);
  ibv_device_attr_ex more{};
  if (options.verbs_odp && ibv_query_device_ex(context_.get(), nullptr, &more) == 0) {
    on_demand_ = (more.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0 &&
                 (more.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_WRITE) != 0;
  }
  channel_.reset(ibv_create_comp_channel(context_.get()));
  if (channel_ == nullptr) return system_error(name_ + ": ibv_create_comp_channel", errno);
  // Events are looked at, never waited for.
  for (const int descriptor : {context_->async_fd, channel_->fd}) {
    const int flags = fcntl(descriptor, F_GETFL);
    if (flags < 0 || fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) < 0)
      return system_error(name_ + ": fcntl on the events", errno);
  }
  return {};
}

Result<CompletionsPtr> Device::make_completions(int room) {
  CompletionsPtr made(ibv_create_cq(context_.get(), room, nullptr, channel_.get(), 0));
  if (made == nullptr) return registration_error(name_ + ": ibv_create_cq", errno);
  return made;
}

Status Device::ask_for_notice(std::initializer_list<ibv_cq*> queues) {
  ibv_cq* of = nullptr;
  void* unused = nullptr;
  while (ibv_get_cq_event(channel_.get(), &of, &unused) == 0)
    ibv_ack_cq_events(of, 1);
  for (ibv_cq* queue : queues) {
    if (const int err = ibv_req_notify_cq(queue, 0); err != 0)
      return system_error(name_ + ": ibv_req_notify_cq", err);
  }
  return {};
}

std::string Device::describe() const {
  std::string text = fmt::format("{}, {}, GID {} {}, MTU {}", name_, link_kind_name(gid_.kind), gid_.index,
                                 gid_text(gid_.gid), 128 << mtu());
  if (traffic_class_ != 0)
    text += fmt::format(", traffic class {} (DSCP {})", traffic_class_, traffic_class_ >> 2);
  if (service_level_ != 0) text += fmt::format(", service level {}", service_level_);
  return text + partition_text_ + (on_demand_ ? ", on-demand paging" : "");
}

ibv_ah_attr Device::route_to(const Address& peer) const {
  ibv_ah_attr route{};
  route.dlid = peer.lid;
  route.sl = service_level_;
  route.port_num = port_;
  // Within a subnet of InfiniBand the LID is enough.
  const bool same_subnet = std::equal(peer.gid.begin(), peer.gid.begin() + 8, gid_.gid.begin());
  if (peer.link == LinkKind::infiniband && peer.lid != 0 && same_subnet) return route;
  route.is_global = 1;
  std::memcpy(route.grh.dgid.raw, peer.gid.data(), peer.gid.size());
  route.grh.sgid_index = static_cast<std::uint8_t>(gid_.index);
  route.grh.hop_limit = 64;
  route.grh.traffic_class = traffic_class_;
  return route;
}

ibv_ah_attr Device::route_to_itself() const {
  Address own;
  own.link = gid_.kind;
  own.lid = lid();
  own.gid = gid_.gid;
  return route_to(own);
}

Result<MemoryPinner::Pinned> Device::pin(const void* data, std::size_t bytes, bool writable) {
  int access = writable ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0;
  if (on_demand_) access |= IBV_ACCESS_ON_DEMAND;
  ibv_mr* memory = ibv_reg_mr(domain_.get(), const_cast<void*>(data), bytes, static_cast<unsigned>(access));
  if (memory == nullptr)
    return registration_error(fmt::format("{}: registering {} bytes", name_, bytes), errno);
  return Pinned{memory, {memory->lkey, memory->rkey}};
}

void Device::unpin(void* handle) {
  const MemoryPtr memory(static_cast<ibv_mr*>(handle));
}

// Never by page tables, which a GPU's memory is not in. What is written there may come in any order, as PCIe
// bridges between a device and a GPU have it faster: who uses it has seen the message's completion, and waits
// for the writes before that (gpu::Link::after_networks). Where the device or the system has no such order
// the flag says nothing.
Result<MemoryPinner::Pinned> Device::pin(const DeviceMemory& memory) {
  constexpr int kBoth = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_RELAXED_ORDERING;
  const auto address = reinterpret_cast<std::uintptr_t>(memory.begin);
  ibv_mr* made = nullptr;
  std::string reasons;
  if (memory.dmabuf >= 0) {
    made = ibv_reg_dmabuf_mr(domain_.get(), 0, memory.bytes, address, memory.dmabuf, kBoth);
    if (made == nullptr) reasons = fmt::format("by dmabuf: {}; ", std::strerror(errno));
  }
  if (made == nullptr) made = ibv_reg_mr(domain_.get(), memory.begin, memory.bytes, unsigned{kBoth});
  if (made != nullptr) return Pinned{made, {made->lkey, made->rkey}};
  return Status(Code::unsupported,
                fmt::format("{} takes no memory of the GPU's ({}by its addresses, for which nvidia_peermem "
                            "must be loaded: {})",
                            name_, reasons, std::strerror(errno)));
}

bool Device::port_is_up() const {
  ibv_port_attr now{};
  return ibv_query_port(context_.get(), port_, &now) == 0 && now.state == IBV_PORT_ACTIVE;
}

void Device::events(const std::function<void(const ibv_async_event&)>& seen) {
  ibv_async_event event{};
  while (ibv_get_async_event(context_.get(), &event) == 0) {
    // First: what it makes the caller do may be to end the queue pair that it is about, which waits for this.
    ibv_ack_async_event(&event);
    seen(event);
  }
}

}  // namespace heddle::verbs
