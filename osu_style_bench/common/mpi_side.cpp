#include <dlfcn.h>
#include <mpi.h>

#include <cstdint>
#include <vector>

#include "common/side.hpp"

namespace heddle::bench {
namespace {

// Reductions are not defined on MPI_CHAR, which is text.
MPI_Datatype mpi_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::int8:
      return MPI_SIGNED_CHAR;
    case Dtype::int32:
      return MPI_INT;
    case Dtype::float32:
      return MPI_FLOAT;
    case Dtype::float64:
      return MPI_DOUBLE;
  }
  return MPI_BYTE;
}

// As the preload library's query knows blocking collectives (src/interpose/backend_abi.h).
int number_of(Kind kind) {
  switch (kind) {
    case Kind::bcast:
      return 1;
    case Kind::barrier:
      return 2;
    case Kind::reduce:
      return 3;
    case Kind::allgather:
      return 4;
    default:
      return 0;
  }
}

constexpr int kTag = 1;
constexpr MPI_Comm kWorld = MPI_COMM_WORLD;

class MessageSide : public Side {
 public:
  explicit MessageSide(Dtype dtype) : dtype_(dtype), type_(mpi_type(dtype)) {}
  MessageSide(const MessageSide&) = delete;
  MessageSide& operator=(const MessageSide&) = delete;
  ~MessageSide() override {
    for (void* memory : allocated_)
      MPI_Free_mem(memory);
  }

  const void* in_place() const override { return MPI_IN_PLACE; }
  void send(const void* data, std::size_t count, int peer) override {
    MPI_Send(data, static_cast<int>(count), type_, peer, kTag, kWorld);
  }
  void receive(void* data, std::size_t count, int peer) override {
    MPI_Recv(data, static_cast<int>(count), type_, peer, kTag, kWorld, MPI_STATUS_IGNORE);
  }
  void exchange(std::span<void* const> out, std::span<void* const> in, std::size_t count, int peer) override {
    requests_.resize(out.size() + in.size());
    MPI_Request* request = requests_.data();
    for (void* data : in)
      MPI_Irecv(data, static_cast<int>(count), type_, peer, kTag, kWorld, request++);
    for (void* data : out)
      MPI_Isend(data, static_cast<int>(count), type_, peer, kTag, kWorld, request++);
    MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
  }

  void start_allreduce(const void* send, void* receive, std::size_t count) override {
    MPI_Iallreduce(send, receive, static_cast<int>(count), type_, MPI_SUM, kWorld, &open_);
  }
  void start_bcast(void* buffer, std::size_t count, int root) override {
    MPI_Ibcast(buffer, static_cast<int>(count), type_, root, kWorld, &open_);
  }
  bool test() override {
    int done = 0;
    MPI_Test(&open_, &done, MPI_STATUS_IGNORE);
    return done != 0;
  }
  void finish() override { MPI_Wait(&open_, MPI_STATUS_IGNORE); }

  void* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    if (MPI_Alloc_mem(static_cast<MPI_Aint>(bytes), MPI_INFO_NULL, &memory) == MPI_SUCCESS)
      allocated_.push_back(memory);
    return memory;
  }

 protected:
  Dtype dtype_;
  MPI_Datatype type_;

 private:
  std::vector<MPI_Request> requests_;
  std::vector<void*> allocated_;
  MPI_Request open_ = MPI_REQUEST_NULL;
};

class MpiSide final : public MessageSide {
 public:
  using MessageSide::MessageSide;
  const char* name() const override { return preload_version() != nullptr ? "heddle" : "MPI"; }
  void allreduce(const void* send, void* receive, std::size_t count) override {
    MPI_Allreduce(send, receive, static_cast<int>(count), type_, MPI_SUM, kWorld);
  }
  void reduce(const void* send, void* receive, std::size_t count, int root) override {
    MPI_Reduce(send, receive, static_cast<int>(count), type_, MPI_SUM, root, kWorld);
  }
  void allgather(const void* send, void* receive, std::size_t count) override {
    MPI_Allgather(send, static_cast<int>(count), type_, receive, static_cast<int>(count), type_, kWorld);
  }
  void bcast(void* buffer, std::size_t count, int root) override {
    MPI_Bcast(buffer, static_cast<int>(count), type_, root, kWorld);
  }
  void barrier() override { MPI_Barrier(kWorld); }
  std::string algorithm(Kind kind, std::size_t count) override {
    if (preload_version() == nullptr) return "-";
    using Query = const char* (*)(int, std::size_t, void*);
    const auto query = reinterpret_cast<Query>(dlsym(RTLD_DEFAULT, "heddle_preload_algorithm"));
    if (query == nullptr) return "-";
    // Handles travel as machine words: an integer of MPICH's family, a pointer elsewhere.
    auto* const word = reinterpret_cast<void*>((std::uintptr_t)kWorld);
    const char* name = query(number_of(kind), count * size_of(dtype_), word);
    return name == nullptr ? "-" : name;
  }
};

class HostSide final : public MessageSide {
 public:
  using MessageSide::MessageSide;
  const char* name() const override { return "MPI"; }
  void allreduce(const void* send, void* receive, std::size_t count) override {
    PMPI_Allreduce(send, receive, static_cast<int>(count), type_, MPI_SUM, kWorld);
  }
  void reduce(const void* send, void* receive, std::size_t count, int root) override {
    PMPI_Reduce(send, receive, static_cast<int>(count), type_, MPI_SUM, root, kWorld);
  }
  void allgather(const void* send, void* receive, std::size_t count) override {
    PMPI_Allgather(send, static_cast<int>(count), type_, receive, static_cast<int>(count), type_, kWorld);
  }
  void bcast(void* buffer, std::size_t count, int root) override {
    PMPI_Bcast(buffer, static_cast<int>(count), type_, root, kWorld);
  }
  void barrier() override { PMPI_Barrier(kWorld); }
  std::string algorithm(Kind, std::size_t) override { return "-"; }
};

}  // namespace

std::unique_ptr<Side> make_mpi_side(Dtype dtype) {
  return std::make_unique<MpiSide>(dtype);
}
std::unique_ptr<Side> make_host_side(Dtype dtype) {
  return std::make_unique<HostSide>(dtype);
}

bool host_takes_gpu_memory() {
  using Query = int (*)();
  const auto query = reinterpret_cast<Query>(dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support"));
  return query != nullptr && query() == 1;
}

const char* preload_version() {
  using Query = const char* (*)();
  const auto query = reinterpret_cast<Query>(dlsym(RTLD_DEFAULT, "heddle_preload_version"));
  return query == nullptr ? nullptr : query();
}

}  // namespace heddle::bench
