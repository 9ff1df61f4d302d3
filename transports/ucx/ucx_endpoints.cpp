// The connections: when they are made, what becomes of them, and what they take.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "base/descriptors.hpp"
#include "transports/ucx/ucx_footprint.hpp"
#include "transports/ucx/ucx_messages.hpp"

namespace heddle {
namespace {

// UCX may open up to four while it connects both directions of one peer.
constexpr std::size_t kDescriptorsPerPeer = 4;
// A receive this old is worth a connection to its sender, which tells when the sender dies: until then
// receives need none.
constexpr std::int64_t kWatchAfterMs = 200;

}  // namespace

UcxPeer* UcxMessages::first_peer() {
  // The next one up: rings and trees begin there.
  for (std::size_t i = 1; i <= peers_.size(); ++i) {
    UcxPeer& peer = peers_[(static_cast<std::size_t>(rank_) + i) % peers_.size()];
    if (!peer.address.empty()) return &peer;
  }
  return nullptr;
}

Status UcxMessages::failed(const UcxPeer& peer, ucs_status_t status) const {
  return Status(Code::peer_failed, fmt::format("rank {} on {}: the connection failed (UCX: {})", peer.rank,
                                               peer.host, ucs_status_string(status)));
}

Status UcxMessages::connect(UcxPeer& peer) {
  if (peer.failure != UCS_OK) return failed(peer, peer.failure);
  if (peer.address.empty())
    return Status(Code::internal, fmt::format("UCX has no address of rank {}", peer.rank));
  if (!has_descriptors(kDescriptorsPerPeer)) {
    const Descriptors now = count_descriptors();
    return Status(
        Code::out_of_memory,
        fmt::format("no connection to rank {} on {}: {} of {} file descriptors are open (ulimit -n)",
                    peer.rank, peer.host, now.open, now.limit));
  }
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(peer.address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &UcxMessages::on_failure;
  params.err_handler.arg = &peer;
  const ucs_status_t status = ucp_ep_create(worker_.handle(), &params, &peer.endpoint);
  if (status != UCS_OK) {
    peer.endpoint = nullptr;
    peer.failure = status;
    return Status(Code::peer_failed, fmt::format("UCX cannot connect to rank {} on {}: {}", peer.rank,
                                                 peer.host, ucs_status_string(status)));
  }
  peer.address.clear();
  peer.address.shrink_to_fit();
  return {};
}

// Called by UCX's progress. The endpoint stays to be closed.
void UcxMessages::on_failure(void* argument, ucp_ep_h, ucs_status_t status) {
  UcxPeer& peer = *static_cast<UcxPeer*>(argument);
  peer.failure = status != UCS_OK ? status : UCS_ERR_CONNECTION_RESET;
  peer.owner->peer_failed_ = true;
}

void UcxMessages::close(UcxPeer& peer, bool by_force) {
  if (peer.endpoint == nullptr) return;
  ucp_request_param_t param{};
  if (by_force) {
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  }
  const ucs_status_ptr_t request = ucp_ep_close_nbx(peer.endpoint, &param);
  peer.endpoint = nullptr;
  if (UCS_PTR_IS_PTR(request)) closing_.push_back(request);
}

bool UcxMessages::peer_is_gone(int peer) const {
  const ucs_status_t failure = peers_[static_cast<std::size_t>(peer)].failure;
  return failure != UCS_OK && failure != UCS_ERR_CANCELED;  // canceled: by this rank
}

// A peer may leave when it has had its share of the last collective: only those who still expect something of
// it mind.
Status UcxMessages::look_at_failures() {
  peer_failed_ = false;
  for (const UcxOpen* open : open_) {
    if (!error_.ok() || open->ticket == nullptr || open->peer->failure == UCS_OK) continue;
    if (open->peer->failure != UCS_ERR_CANCELED) culprit_ = open->peer->rank;
    error_ = failed(*open->peer, open->peer->failure);
  }
  return error_;
}

Status UcxMessages::watch_senders() {
  const std::int64_t now = coarse_ms();
  next_watch_ms_ = now + kWatchAfterMs / 2;
  for (const UcxOpen* open : open_) {
    UcxPeer& peer = *open->peer;
    if (!open->receives || peer.endpoint != nullptr || now - open->since_ms < kWatchAfterMs) continue;
    Status status = connect(peer);
    // Where descriptors are short nobody watches, and the wait has its deadline all the same.
    if (status.code() != Code::peer_failed) continue;
    culprit_ = peer.rank;
    return error_ = std::move(status);
  }
  return {};
}

// UCX ends the process when it cannot accept a connection, and who connects to this rank is up to the others:
// there must be room for all of them. Networks other than TCP need no descriptor for each peer.
Status UcxMessages::check_descriptors() const {
  const std::string lanes = footprint().lanes;
  std::size_t sockets = lanes.empty() ? 1 : 0;
  for (std::size_t at = lanes.find("tcp/"); at != std::string::npos; at = lanes.find("tcp/", at + 1))
    ++sockets;
  const auto reached =
      static_cast<std::size_t>(std::count_if(peers_.begin(), peers_.end(), [](const UcxPeer& p) {
        return p.endpoint != nullptr || !p.address.empty();
      }));
  const std::size_t needed = reached * sockets + kDescriptorsPerPeer;
  if (sockets == 0 || has_descriptors(needed)) return {};
  const Descriptors now = count_descriptors();
  return Status(Code::out_of_memory,
                fmt::format("connections to {} ranks may take {} file descriptors over TCP, and {} "
                            "of {} file descriptors are open (ulimit -n)",
                            reached, needed, now.open, now.limit));
}

UcxFootprint UcxMessages::footprint() const {
  UcxFootprint found;
  for (const UcxPeer& peer : peers_) {
    if (peer.endpoint == nullptr) continue;
    if (found.endpoints++ == 0) found.lanes = lanes_of(peer.endpoint);
  }
  return found;
}

}  // namespace heddle
