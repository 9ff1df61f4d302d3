// What the backend hands out for staged_calls.h: messages, ends of requests, and with staged_collectives.hpp
// all of them.
#include <new>

#include "interpose/backend/staged_collectives.hpp"

namespace heddle::backend {
namespace staged {
namespace {

// ---- Messages. With MPI_PROC_NULL there is none, and a buffer need not be one.

template <typename Host>
auto send_as(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](const void* data, auto count, heddle_word type, int to, int tag, heddle_word comm,
                     auto... request) {
    StagedCall call(calls, name, comm);
    const void* from = data;
    if (to != MPI_PROC_NULL) from = call.read(data, call.span(data, elements(count), type));
    return call.finish([&] { return host(from, count, type, to, tag, comm, request...); }, request...);
  };
}

template <typename Host>
auto send(StagedCalls& calls, const char* name, Host host) {
  return send_as(calls, name, host);
}

template <typename Host>
auto ssend(StagedCalls& calls, const char* name, Host host) {
  return send_as(calls, name, host);
}

template <typename Host>
auto rsend(StagedCalls& calls, const char* name, Host host) {
  return send_as(calls, name, host);
}

template <typename Host>
auto bsend(StagedCalls& calls, const char* name, Host host) {
  return send_as(calls, name, host);
}

template <typename Host>
auto send_init(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](const void* data, auto count, heddle_word type, int to, int tag, heddle_word comm,
                     void* request) {
    StagedCall call(calls, name, comm);
    const void* from = data;
    if (to != MPI_PROC_NULL) from = call.read(data, call.span(data, elements(count), type));
    return call.finish_persistent([&] { return host(from, count, type, to, tag, comm, request); }, request);
  };
}

template <typename Host>
auto sendrecv(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](const void* in, auto in_count, heddle_word in_type, int to, int in_tag, void* out,
                     auto out_count, heddle_word out_type, int from, int out_tag, heddle_word comm,
                     void* status) {
    StagedCall call(calls, name, comm);
    const void* source = in;
    void* target = out;
    if (to != MPI_PROC_NULL) source = call.read(in, call.span(in, elements(in_count), in_type));
    if (from != MPI_PROC_NULL) target = call.write(out, call.span(out, elements(out_count), out_type), false);
    return call.finish_message(status, [&](void* seen) {
      return host(source, in_count, in_type, to, in_tag, target, out_count, out_type, from, out_tag, comm,
                  seen);
    });
  };
}

template <typename Host>
auto sendrecv_replace(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](void* data, auto count, heddle_word type, int to, int in_tag, int from, int out_tag,
                     heddle_word comm, void* status) {
    StagedCall call(calls, name, comm);
    void* both = data;
    if (to != MPI_PROC_NULL || from != MPI_PROC_NULL)
      both = call.write(data, call.span(data, elements(count), type), true);
    return call.finish_message(
        status, [&](void* seen) { return host(both, count, type, to, in_tag, from, out_tag, comm, seen); });
  };
}

// What has a status, and what has a request instead: `finish(call, last, host)` has the host called with what
// it is to see of that.
template <typename Host, typename Finish>
auto recv_as(StagedCalls& calls, const char* name, Host host, Finish finish) {
  return
      [=, &calls](void* data, auto count, heddle_word type, int from, int tag, heddle_word comm, void* last) {
        StagedCall call(calls, name, comm);
        void* to = data;
        if (from != MPI_PROC_NULL) to = call.write(data, call.span(data, elements(count), type), false);
        return finish(call, last, [&](void* seen) { return host(to, count, type, from, tag, comm, seen); });
      };
}

// A message that has been found; of what communicator need not be known.
template <typename Host, typename Finish>
auto mrecv_as(StagedCalls& calls, const char* name, Host host, Finish finish) {
  return [=, &calls](void* data, auto count, heddle_word type, void* message, void* last) {
    StagedCall call(calls, name);
    void* const to = call.write(data, call.span(data, elements(count), type), false);
    return finish(call, last, [&](void* seen) { return host(to, count, type, message, seen); });
  };
}

constexpr auto kWithStatus = [](StagedCall& call, void* status, const auto& host) {
  return call.finish_message(status, host);
};
constexpr auto kWithRequest = [](StagedCall& call, void* request, const auto& host) {
  return call.start_message([&] { return host(request); }, request);
};
constexpr auto kPersistent = [](StagedCall& call, void* request, const auto& host) {
  return call.init_message([&] { return host(request); }, request);
};

#define HEDDLE_WITH(name, as, finish)                              \
  template <typename Host>                                         \
  auto name(StagedCalls& calls, const char* mpi_name, Host host) { \
    return as(calls, mpi_name, host, finish);                      \
  }
HEDDLE_WITH(recv, recv_as, kWithStatus)
HEDDLE_WITH(irecv, recv_as, kWithRequest)
HEDDLE_WITH(recv_init, recv_as, kPersistent)
HEDDLE_WITH(mrecv, mrecv_as, kWithStatus)
HEDDLE_WITH(imrecv, mrecv_as, kWithRequest)
#undef HEDDLE_WITH

// ---- Persistent requests: what they read is looked at now, and nothing has begun where that fails.

template <typename Host>
auto startall(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](int count, void* requests) {
    TakenRequests taken(calls.requests(), count, requests);
    if (const Status status = taken.load(); !status.ok()) return calls.refuse(status, name, MPI_COMM_SELF);
    const int rc = host(count, requests);
    if (rc == MPI_SUCCESS) taken.start();
    return rc;
  };
}

template <typename Host>
auto start(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](void* request) {
    return startall(calls, name, [&](int, void*) { return host(request); })(1, request);
  };
}

// ---- Ends of requests

template <typename Host>
auto wait(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](void* request, void* status) {
    StagedEnd end(calls, name, 1, request, status);
    return end.all(host(request, end.statuses()), true);
  };
}

template <typename Host>
auto test(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](void* request, int* done, void* status) {
    StagedEnd end(calls, name, 1, request, status);
    const int rc = host(request, done, end.statuses());
    return end.all(rc, rc == MPI_SUCCESS && *done != 0);
  };
}

template <typename Host>
auto waitall(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](int count, void* requests, void* statuses) {
    StagedEnd end(calls, name, count, requests, statuses);
    return end.all(host(count, requests, end.statuses()), true);
  };
}

template <typename Host>
auto testall(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](int count, void* requests, int* done, void* statuses) {
    StagedEnd end(calls, name, count, requests, statuses);
    const int rc = host(count, requests, done, end.statuses());
    return end.all(rc, rc != MPI_SUCCESS || *done != 0);
  };
}

template <typename Host>
auto waitany(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](int count, void* requests, int* place, void* status) {
    StagedEnd end(calls, name, count, requests, status);
    const int rc = host(count, requests, place, end.statuses());
    return end.one(rc, true, place);
  };
}

template <typename Host>
auto testany(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](int count, void* requests, int* place, int* done, void* status) {
    StagedEnd end(calls, name, count, requests, status);
    const int rc = host(count, requests, place, done, end.statuses());
    return end.one(rc, rc == MPI_SUCCESS && *done != 0, place);
  };
}

template <typename Host>
auto some(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](int count, void* requests, int* ended, int* places, void* statuses) {
    StagedEnd end(calls, name, count, requests, statuses);
    return end.some(host(count, requests, ended, places, end.statuses()), ended, places);
  };
}

// The request goes on, without images.
template <typename Host>
auto request_get_status(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](heddle_word request, int* done, void* status) {
    MPI_Request handle = abi::handle_of<MPI_Request>(request);
    StagedEnd end(calls, name, 1, &handle, status);
    const int rc = host(request, done, end.statuses());
    return end.all(rc, rc == MPI_SUCCESS && *done != 0);
  };
}

template <typename Host>
auto request_free(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](void* request) {
    StagedEnd end(calls, name, 1, request, MPI_STATUS_IGNORE);
    return end.leave(request) ? MPI_SUCCESS : host(request);
  };
}

}  // namespace
}  // namespace staged

namespace {

// Exceptions may pass: an error handler of the user's, which the host calls in here, may throw one.
namespace functions {

// MPI's functions have no argument for it (entry.cpp).
StagedCalls* process = nullptr;

template <typename Call>
int with_memory(const char* name, const Call& call) try {
  return call();
} catch (const std::bad_alloc&) {
  return process->refuse(Status(Code::out_of_memory, "no memory for staging"), name, MPI_COMM_SELF);
}

#define HEDDLE_FUNCTION(call, name, parameters, arguments)                                                  \
  int name parameters {                                                                                     \
    const auto host = process->next().name;                                                                 \
    if (!process->possible()) [[likely]]                                                                    \
      return host arguments;                                                                                \
    return with_memory("MPI_" #name, [&] { return staged::call(*process, "MPI_" #name, host) arguments; }); \
  }
HEDDLE_STAGED_BUFFERS(HEDDLE_FUNCTION)
#undef HEDDLE_FUNCTION
#define HEDDLE_FUNCTION(call, name, parameters, arguments)                                                  \
  int name parameters {                                                                                     \
    const auto host = process->next().name;                                                                 \
    if (!process->requests().any()) [[likely]]                                                              \
      return host arguments;                                                                                \
    return with_memory("MPI_" #name, [&] { return staged::call(*process, "MPI_" #name, host) arguments; }); \
  }
HEDDLE_STAGED_ENDS(HEDDLE_FUNCTION)
#undef HEDDLE_FUNCTION
}  // namespace functions

}  // namespace

HeddleStagedCalls staged_functions(StagedCalls& calls) {
  functions::process = &calls;
  HeddleStagedCalls all = {};
#define HEDDLE_MEMBER(call, name, parameters, arguments) \
  if (calls.next().name != nullptr) all.name = functions::name;
  HEDDLE_STAGED_CALLS(HEDDLE_MEMBER)
#undef HEDDLE_MEMBER
  return all;
}

}  // namespace heddle::backend
