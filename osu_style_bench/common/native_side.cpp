#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "common/side.hpp"

namespace heddle::bench {
namespace {

heddle_dtype heddle_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::int8:
      return HEDDLE_INT8;
    case Dtype::int32:
      return HEDDLE_INT32;
    case Dtype::float32:
      return HEDDLE_FLOAT32;
    case Dtype::float64:
      return HEDDLE_FLOAT64;
  }
  return HEDDLE_INT8;
}

// A thread that does one thing after the other beside its owner. It stays from one window to the next: to
// make one for each would be measured.
class Helper {
 public:
  Helper() : thread_([this] { serve(); }) {}
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;
  ~Helper() {
    start({});
    thread_.join();
  }
  void start(std::function<void()> work) {
    work_ = std::move(work);
    asked_.fetch_add(1);
    asked_.notify_one();
  }
  // For what was started to be done.
  void wait() {
    for (unsigned done = done_.load(); done != asked_.load(); done = done_.load())
      done_.wait(done);
  }

 private:
  void serve() {
    for (unsigned served = 0;; ++served) {
      asked_.wait(served);
      if (!work_) return;
      work_();
      done_.store(served + 1);
      done_.notify_one();
    }
  }

  std::function<void()> work_;
  std::atomic<unsigned> asked_{0};
  std::atomic<unsigned> done_{0};
  std::thread thread_;
};

class NativeSide final : public Side {
 public:
  NativeSide(const Job& job, Dtype dtype, NativeComm comm, NativeComm back)
      : job_(job),
        type_(heddle_type(dtype)),
        width_(size_of(dtype)),
        comm_(std::move(comm)),
        back_(std::move(back)) {}

  const char* name() const override { return "heddle"; }

  void allreduce(const void* send, void* receive, std::size_t count) override {
    check("heddle_allreduce", heddle_allreduce(send, receive, count, type_, HEDDLE_SUM, comm_.get()));
  }
  const void* in_place() const override { return HEDDLE_IN_PLACE; }
  void reduce(const void* send, void* receive, std::size_t count, int root) override {
    check("heddle_reduce", heddle_reduce(send, receive, count, type_, HEDDLE_SUM, root, comm_.get()));
  }
  void bcast(void* buffer, std::size_t count, int root) override {
    check("heddle_bcast", heddle_bcast(buffer, count * width_, root, comm_.get()));
  }
  void allgather(const void* send, void* receive, std::size_t count) override {
    check("heddle_allgather", heddle_allgather(send, receive, count * width_, comm_.get()));
  }
  void barrier() override { check("heddle_barrier", heddle_barrier(comm_.get())); }
  void start_allreduce(const void* send, void* receive, std::size_t count) override {
    check("heddle_iallreduce",
          heddle_iallreduce(send, receive, count, type_, HEDDLE_SUM, comm_.get(), &open_));
  }
  void start_bcast(void* buffer, std::size_t count, int root) override {
    check("heddle_ibcast", heddle_ibcast(buffer, count * width_, root, comm_.get(), &open_));
  }
  bool test() override {
    int done = 0;
    check("heddle_test", heddle_test(&open_, &done));
    return done != 0;
  }
  void finish() override { check("heddle_wait", heddle_wait(&open_)); }
  void send(const void* data, std::size_t count, int peer) override {
    check("heddle_send", heddle_send(data, count * width_, peer, comm_.get()));
  }
  void receive(void* data, std::size_t count, int peer) override {
    check("heddle_recv", heddle_recv(data, count * width_, peer, comm_.get()));
  }
  // Messages of the native API block. For both directions at once a second thread receives; since one
  // communicator serves one thread at a time, messages to the lower rank travel on a communicator of their
  // own.
  void exchange(std::span<void* const> out, std::span<void* const> in, std::size_t count, int peer) override {
    heddle_comm_t there = comm_.get();
    heddle_comm_t here = comm_.get();
    if (!out.empty() && !in.empty()) (job_.rank() < peer ? here : there) = back_.get();
    const auto receive_all = [&] {
      for (void* data : in)
        check("heddle_recv", heddle_recv(data, count * width_, peer, here));
    };
    const auto send_all = [&] {
      for (void* data : out)
        check("heddle_send", heddle_send(data, count * width_, peer, there));
    };
    if (out.empty()) return receive_all();
    if (in.empty()) return send_all();
    if (!receiver_) receiver_.emplace();
    receiver_->start(receive_all);
    send_all();
    receiver_->wait();
  }

  void* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    check("heddle_alloc", heddle_alloc(bytes, comm_.get(), &memory));
    return memory;
  }

  std::string algorithm(Kind kind, std::size_t count) override {
    const char* name = "-";
    return status_of_algorithm(kind, count, &name) == HEDDLE_OK ? name : "-";
  }

 private:
  heddle_status status_of_algorithm(Kind kind, std::size_t count, const char** name) const {
    switch (kind) {
      case Kind::allreduce:
      case Kind::iallreduce:
        return heddle_allreduce_algorithm(count, type_, HEDDLE_SUM, comm_.get(), name);
      case Kind::reduce:
        return heddle_reduce_algorithm(count, type_, HEDDLE_SUM, comm_.get(), name);
      case Kind::bcast:
      case Kind::ibcast:
        return heddle_bcast_algorithm(count * width_, comm_.get(), name);
      case Kind::allgather:
        return heddle_allgather_algorithm(count * width_, comm_.get(), name);
      default:
        return HEDDLE_ERR_UNSUPPORTED;
    }
  }
  void check(const char* what, heddle_status status) const {
    if (status != HEDDLE_OK)
      job_.abort(fmt::format("{}: {}: {}", what, heddle_status_name(status), heddle_last_error()));
  }

  const Job& job_;
  heddle_dtype type_;
  std::size_t width_;
  NativeComm comm_;
  NativeComm back_;
  heddle_request_t open_ = nullptr;
  std::optional<Helper> receiver_;  // ends before what it uses
};

}  // namespace

std::unique_ptr<Side> make_native_side(const Job& job, Dtype dtype, std::string& problem) {
  NativeComm comm = job.make_native_comm(problem);
  if (comm == nullptr) return nullptr;
  NativeComm back = job.make_native_comm(problem);
  if (back == nullptr) return nullptr;
  return std::make_unique<NativeSide>(job, dtype, std::move(comm), std::move(back));
}

}  // namespace heddle::bench
