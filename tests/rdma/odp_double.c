/* Preloaded where a device is to be taken for one that follows the page tables, which Soft-RoCE does not: it
 * says so, and pins all the same. What is registered for longer than its pages stay goes wrong here. */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#undef ibv_reg_mr

/* The module's own, wherever it is loaded. */
static void* real(const char* name) {
  return dlsym(dlopen("libibverbs.so.1", RTLD_LAZY), name);
}

static int (*ask)(struct ibv_context*, const struct ibv_query_device_ex_input*, struct ibv_device_attr_ex*,
                  size_t);

static int claim(struct ibv_context* context, const struct ibv_query_device_ex_input* input,
                 struct ibv_device_attr_ex* answer, size_t size) {
  const int err = ask(context, input, answer, size);
  answer->odp_caps.general_caps |= IBV_ODP_SUPPORT;
  answer->odp_caps.per_transport_caps.rc_odp_caps |= IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_WRITE;
  return err;
}

struct ibv_context* ibv_open_device(struct ibv_device* device) {
  struct ibv_context* (*next)(struct ibv_device*);
  *(void**)&next = real("ibv_open_device");
  struct ibv_context* const opened = next(device);
  struct verbs_context* const more = opened == NULL ? NULL : verbs_get_ctx(opened);
  if (more != NULL && more->query_device_ex != claim) {
    ask = more->query_device_ex;
    more->query_device_ex = claim;
  }
  return opened;
}

struct ibv_mr* ibv_reg_mr(struct ibv_pd* pd, void* memory, size_t bytes, int access) {
  struct ibv_mr* (*next)(struct ibv_pd*, void*, size_t, int);
  *(void**)&next = real("ibv_reg_mr");
  return next(pd, memory, bytes, access & ~IBV_ACCESS_ON_DEMAND);
}

struct ibv_mr* ibv_reg_mr_iova2(struct ibv_pd* pd, void* memory, size_t bytes, uint64_t iova,
                                unsigned access) {
  struct ibv_mr* (*next)(struct ibv_pd*, void*, size_t, uint64_t, unsigned);
  *(void**)&next = real("ibv_reg_mr_iova2");
  return next(pd, memory, bytes, iova, access & ~(unsigned)IBV_ACCESS_ON_DEMAND);
}
