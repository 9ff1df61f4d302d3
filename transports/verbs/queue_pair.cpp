#include "transports/verbs/queue_pair.hpp"

namespace heddle::verbs {

int prepare_queue_pair(ibv_qp& queue_pair, const Device& device) {
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.pkey_index = device.partition();
  to.port_num = device.port();
  to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  return ibv_modify_qp(&queue_pair, &to,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int connect_queue_pair(ibv_qp& queue_pair, ibv_qp_attr to) {
  // Nobody reads another's memory.
  to.max_dest_rd_atomic = 1;
  to.max_rd_atomic = 1;
  to.qp_state = IBV_QPS_RTR;
  const int err = ibv_modify_qp(&queue_pair, &to,
                                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (err != 0) return err;
  to.qp_state = IBV_QPS_RTS;
  return ibv_modify_qp(&queue_pair, &to,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                           IBV_QP_MAX_QP_RD_ATOMIC);
}

}  // namespace heddle::verbs
