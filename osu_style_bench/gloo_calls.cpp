// The little of MPI that peer_loop.c calls, by gloo over TCP, as PyTorch's gloo backend does it: for the same
// loop to be linked with instead of an MPI. Hydra starts it (PMI_RANK, PMI_SIZE). Settings: GLOO_STORE, a new
// folder that all ranks reach; GLOO_INTERFACE, the network interface; GLOO_ALGORITHM, of allreduces: ring,
// bcube or, for sums, halving_doubling (gloo's own choice where it is not set).
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

std::string setting(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

std::shared_ptr<gloo::Context> connected() {
  const int rank = std::stoi(setting("PMI_RANK", "0"));
  const int size = std::stoi(setting("PMI_SIZE", "1"));
  gloo::transport::tcp::attr attributes;
  attributes.iface = setting("GLOO_INTERFACE", "lo");
  attributes.ai_family = AF_INET;  // of an address for this link alone others would not know which link
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore store(setting("GLOO_STORE", "."));
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->connectFullMesh(store, device);
  return context;
}

// Never torn down: the process may end in any order.
const std::shared_ptr<gloo::Context>& context() {
  static const auto* made = new std::shared_ptr<gloo::Context>(connected());
  return *made;
}

using Fold = void (*)(void*, const void*, const void*, std::size_t);

// One for each vector, as gloo means it: made once, with its own buffers and connections, and run often. The
// last ones are never torn down.
template <typename T>
gloo::AllreduceHalvingDoubling<T>& halving_doubling(T* vector, std::size_t count) {
  using Algorithm = gloo::AllreduceHalvingDoubling<T>;
  static auto& made = *new std::map<std::pair<T*, std::size_t>, std::unique_ptr<Algorithm>>;
  // Of one length at a time, as the loop asks for them: each has a vector of its own.
  if (!made.empty() && made.begin()->first.second != count) made.clear();
  std::unique_ptr<Algorithm>& found = made[{vector, count}];
  if (!found)
    found = std::make_unique<Algorithm>(context(), std::vector<T*>{vector}, static_cast<int>(count));
  return *found;
}

template <typename T>
void allreduce(const T* in, T* out, std::size_t count, Fold fold) {
  static const std::string algorithm = setting("GLOO_ALGORITHM", "");
  if (algorithm == "halving_doubling" && fold == static_cast<Fold>(&gloo::sum<T>)) {
    std::memcpy(out, in, count * sizeof *in);
    halving_doubling(out, count).run();
    return;
  }
  if (!algorithm.empty() && algorithm != "ring" && algorithm != "bcube" && algorithm != "halving_doubling")
    throw std::invalid_argument("GLOO_ALGORITHM=" + algorithm + ": give ring, bcube or halving_doubling");
  // What is no sum is what ranks agree on besides, by gloo's own choice where halving_doubling has none.
  gloo::AllreduceOptions options(context());
  if (algorithm == "ring") options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
  if (algorithm == "bcube") options.setAlgorithm(gloo::AllreduceOptions::Algorithm::BCUBE);
  options.setInput(const_cast<T*>(in), count);
  options.setOutput(out, count);
  options.setReduceFunction(fold);
  gloo::allreduce(options);
}

// Also others than the root need an `out`.
template <typename T>
void reduce(const T* in, T* out, std::size_t count, int root, Fold fold) {
  gloo::ReduceOptions options(context());
  options.setInput(const_cast<T*>(in), count);
  options.setOutput(out, count);
  options.setRoot(root);
  options.setReduceFunction(fold);
  gloo::reduce(options);
}

template <typename T>
void broadcast(T* data, std::size_t count, int root) {
  gloo::BroadcastOptions options(context());
  options.setOutput(data, count);
  options.setRoot(root);
  gloo::broadcast(options);
}

// What fails ends the process, and Hydra the job.
template <typename Call>
int guarded(const Call& call) {
  try {
    call();
    return MPI_SUCCESS;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gloo: %s\n", error.what());
    std::_Exit(1);
  }
}

}  // namespace

extern "C" {

int MPI_Init(int* /*argc*/, char*** /*argv*/) {
  return guarded([] { context(); });
}

int MPI_Comm_rank(MPI_Comm /*comm*/, int* rank) {
  *rank = context()->rank;
  return MPI_SUCCESS;
}

int MPI_Comm_size(MPI_Comm /*comm*/, int* size) {
  *size = context()->size;
  return MPI_SUCCESS;
}

double MPI_Wtime() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int MPI_Abort(MPI_Comm /*comm*/, int code) {
  std::_Exit(code);
}

// Nobody leaves while others still talk to it.
int MPI_Finalize() {
  return guarded([] {
    gloo::BarrierOptions options(context());
    gloo::barrier(options);
  });
}

// Sums of floats, and the largest of doubles.
int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op /*op*/, MPI_Comm /*comm*/) {
  return guarded([&] {
    const auto n = static_cast<std::size_t>(count);
    if (type == MPI_FLOAT) {
      allreduce(static_cast<const float*>(in), static_cast<float*>(out), n, &gloo::sum<float>);
    } else {
      allreduce(static_cast<const double*>(in), static_cast<double*>(out), n, &gloo::max<double>);
    }
  });
}

// Sums of floats.
int MPI_Reduce(const void* in, void* out, int count, MPI_Datatype /*type*/, MPI_Op /*op*/, int root,
               MPI_Comm /*comm*/) {
  return guarded([&] {
    reduce(static_cast<const float*>(in), static_cast<float*>(out), static_cast<std::size_t>(count), root,
           &gloo::sum<float>);
  });
}

// Of floats.
int MPI_Allgather(const void* in, int count, MPI_Datatype /*type*/, void* out, int /*out_count*/,
                  MPI_Datatype /*out_type*/, MPI_Comm /*comm*/) {
  return guarded([&] {
    const auto n = static_cast<std::size_t>(count);
    gloo::AllgatherOptions options(context());
    options.setInput(static_cast<float*>(const_cast<void*>(in)), n);
    options.setOutput(static_cast<float*>(out), n * static_cast<std::size_t>(context()->size));
    gloo::allgather(options);
  });
}

int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm /*comm*/) {
  return guarded([&] {
    const auto n = static_cast<std::size_t>(count);
    if (type == MPI_FLOAT) {
      broadcast(static_cast<float*>(data), n, root);
    } else {
      broadcast(static_cast<double*>(data), n, root);
    }
  });
}
}
