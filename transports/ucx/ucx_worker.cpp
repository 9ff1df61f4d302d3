#include "transports/ucx/ucx_worker.hpp"

#include <dirent.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <span>
#include <utility>

namespace heddle {
namespace {

// The address of a worker without any device is a version, an identity of eight bytes and an empty list.
constexpr std::size_t kEmptyAddress = 16;

// UCX reads its settings, and those with this before their names over them: a host MPI may go by UCX as well,
// and with other ones.
constexpr const char* kOwnPrefix = "HEDDLE";

std::string setting(const char* name) {
  const std::string own = fmt::format("{}_{}", kOwnPrefix, name);
  if (const char* value = std::getenv(own.c_str()); value != nullptr) return fmt::format("{}={}", own, value);
  const char* value = std::getenv(name);
  return value != nullptr ? fmt::format("{}={}", name, value) : std::string();
}

// What the user asked for is most often why there is no device.
std::string user_settings() {
  std::string text;
  for (const char* name : {"UCX_TLS", "UCX_NET_DEVICES"}) {
    const std::string one = setting(name);
    if (!one.empty()) text += (text.empty() ? " (" : ", ") + one;
  }
  return text.empty() ? "" : text + ")";
}

Status no_device(const char* detail) {
  return Status(Code::unsupported, fmt::format("UCX finds no network device{}: {}", user_settings(), detail));
}

struct Preset {
  const char* name;      // to ucp_config_modify(), which knows a protocol's settings without the protocol
  const char* variable;  // what the user sets
  const char* value;
};
// Unless the user says otherwise.
constexpr Preset kPresets[] = {
    // Ranks of a node have better than UCX's shared memory, which would cost every worker memory and
    // descriptors.
    {"TLS", "UCX_TLS", "^sm,self"},
    // Or else connecting to a host that does not answer blocks for two minutes, whatever the deadline.
    {"CONN_NB", "UCX_TCP_CONN_NB", "y"}};
// Over sockets alone. UCX's handshake spares one copy, and costs more than that: with the error handling that
// tells of lost peers, two ranks that send each other 2 MiB at once took 1.25 times as long (UCX 1.13, links
// of 1 Gbit/s), and 32 to 256 KiB up to twice as long on fast ones. What comes before its receive is open
// waits in memory of UCX's; who does not receive at all is not sent more than sockets hold.
constexpr Preset kSocketPresets[] = {{"RNDV_THRESH", "UCX_RNDV_THRESH", "inf"}};

// Unless the user has.
void preset(ucp_config_t* config, std::span<const Preset> presets) {
  for (const Preset& each : presets) {
    // A version that does not know it does without.
    if (setting(each.variable).empty()) (void)ucp_config_modify(config, each.name, each.value);
  }
}

// Not by std::filesystem, whose iterators end the process where there is no memory for a name.
bool has_rdma_devices() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/sys/class/infiniband"), closedir);
  if (folder == nullptr) return false;
  while (const dirent* entry = readdir(folder.get())) {
    if (entry->d_name[0] != '.') return true;
  }
  return false;
}

}  // namespace

std::string ucx_version() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  ucp_get_version(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

Result<std::shared_ptr<UcxContext>> UcxContext::create() {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(kOwnPrefix, nullptr, &config);
  if (status != UCS_OK)
    return Status(Code::unsupported, fmt::format("UCX does not accept its settings (UCX_*, HEDDLE_UCX_*): {}",
                                                 ucs_status_string(status)));
  preset(config, kPresets);
  if (!has_rdma_devices()) preset(config, kSocketPresets);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_TAG_SENDER_MASK |
                      UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  params.tag_sender_mask = ~std::uint64_t{0} << 32;
  params.mt_workers_shared = 1;  // communicators of one process may be used by different threads
  params.name = "heddle";
  ucp_context_h handle = nullptr;
  status = ucp_init(&params, config, &handle);
  ucp_config_release(config);
  if (status != UCS_OK) return no_device(ucs_status_string(status));
  return std::shared_ptr<UcxContext>(new UcxContext(handle));
}

bool UcxContext::device_memory() const {
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  if (ucp_context_query(handle_, &attributes) != UCS_OK) return false;
  return (attributes.memory_types >> UCS_MEMORY_TYPE_CUDA & 1) != 0;
}

Result<std::unique_ptr<UcxWorker>> UcxWorker::create(std::shared_ptr<UcxContext> context) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h handle = nullptr;
  const ucs_status_t status = ucp_worker_create(context->handle(), &params, &handle);
  if (status != UCS_OK)
    return Status(Code::unsupported, fmt::format("ucp_worker_create: {}", ucs_status_string(status)));
  std::unique_ptr<UcxWorker> made(new UcxWorker(std::move(context), handle));
  HEDDLE_TRY(made->find_address());
  if (ucp_worker_get_efd(handle, &made->wake_descriptor_) != UCS_OK) made->wake_descriptor_ = -1;
  return made;
}

// Without the devices within a host: two containers of one host may look like one to UCX, and have no memory
// in common.
Status UcxWorker::find_address() {
  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS;
  attributes.address_flags = UCP_WORKER_ADDRESS_FLAG_NET_ONLY;
  const ucs_status_t status = ucp_worker_query(handle_, &attributes);
  if (status != UCS_OK)
    return Status(Code::unsupported, fmt::format("ucp_worker_query: {}", ucs_status_string(status)));
  address_.assign(reinterpret_cast<const char*>(attributes.address), attributes.address_length);
  ucp_worker_release_address(handle_, attributes.address);
  if (address_.size() < kEmptyAddress) return no_device("none of the devices leads to other hosts");
  return {};
}

void UcxWorker::destroy() {
  if (handle_ != nullptr) ucp_worker_destroy(handle_);
  handle_ = nullptr;
  wake_descriptor_ = -1;
}

}  // namespace heddle
