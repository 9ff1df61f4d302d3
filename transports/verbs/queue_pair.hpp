// What reliably connected queue pairs are told before they send (ibv_modify_qp(3)).
#pragma once

#include "transports/verbs/device.hpp"

namespace heddle::verbs {

// From now on receives can be posted to it. Its peer may write to this process's memory, where it has the
// keys. 0, or errno.
int prepare_queue_pair(ibv_qp& queue_pair, const Device& device);

// Connects it, once it is prepared. `to` says with whom (`dest_qp_num`, `ah_attr`, `path_mtu`), both sides'
// first packets (`rq_psn`, `sq_psn`), how long it tries (`timeout`, `retry_cnt`), and the same where the peer
// has no receive open (`rnr_retry`; for its own peer: `min_rnr_timer`). 0, or errno.
int connect_queue_pair(ibv_qp& queue_pair, ibv_qp_attr to);

}  // namespace heddle::verbs
