#include "scale/simulated_host.hpp"

#include <simgrid/engine.h>

#include <cstring>

namespace heddle::scale {
namespace {

SimulatedHost& host_of(void* context) {
  return *static_cast<SimulatedHost*>(context);
}

}  // namespace

Meeting& world_meeting() {
  static Meeting* meeting = [] {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return new Meeting(size);
  }();
  return *meeting;
}

std::size_t SimulatedHost::add(MPI_Request opened) {
  if (free_.empty()) {
    open_.push_back(opened);
    return open_.size() - 1;
  }
  const std::size_t place = free_.back();
  free_.pop_back();
  open_[place] = opened;
  return place;
}

int SimulatedHost::send(const void* data, std::size_t bytes, int peer, int tag, void* request,
                        void* context) {
  MPI_Request opened = MPI_REQUEST_NULL;
  const int error =
      MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, host_of(context).comm_, &opened);
  const std::size_t place = host_of(context).add(opened);
  std::memcpy(request, &place, sizeof place);
  return error;
}

int SimulatedHost::recv(void* data, std::size_t bytes, int peer, int tag, void* request, void* context) {
  MPI_Request opened = MPI_REQUEST_NULL;
  const int error =
      MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, host_of(context).comm_, &opened);
  const std::size_t place = host_of(context).add(opened);
  std::memcpy(request, &place, sizeof place);
  return error;
}

int SimulatedHost::test(void* request, int* done, void* context) {
  SimulatedHost& host = host_of(context);
  std::size_t place = 0;
  std::memcpy(&place, request, sizeof place);
  *done = host.open_[place] == MPI_REQUEST_NULL ? 1 : 0;
  if (*done != 0) host.free_.push_back(place);
  return MPI_SUCCESS;
}

// Only a failed collective cancels, and then the program ends.
int SimulatedHost::cancel(void* /*request*/, void* /*context*/) {
  return MPI_ERR_OTHER;
}

void SimulatedHost::wait_for_any() {
  int which = MPI_UNDEFINED;
  MPI_Waitany(static_cast<int>(open_.size()), open_.data(), &which, MPI_STATUS_IGNORE);
}

// Through memory: what a set-up costs is not simulated, and 4,096 ranks would exchange millions of messages.
Status SimulatedHost::gather(const void* mine, void* all, std::size_t bytes) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(comm_, &rank);
  MPI_Comm_size(comm_, &size);
  Meeting& meeting = world_meeting();
  meeting.said.resize(bytes * static_cast<std::size_t>(size));
  std::memcpy(meeting.said.data() + bytes * static_cast<std::size_t>(rank), mine, bytes);
  meeting.wait();
  std::memcpy(all, meeting.said.data(), meeting.said.size());
  meeting.wait();
  return {};
}

Bootstrap SimulatedHost::bootstrap() {
  Bootstrap bootstrap;
  MPI_Comm_rank(comm_, &bootstrap.rank);
  MPI_Comm_size(comm_, &bootstrap.size);
  bootstrap.allgather = [this](const void* mine, void* all, std::size_t bytes) {
    return gather(mine, all, bytes);
  };
  bootstrap.make_p2p = [this]() -> Result<heddle_p2p> {
    return heddle_p2p{send, recv, test, cancel, nullptr, nullptr, this};
  };
  bootstrap.host_progress = [this] { wait_for_any(); };
  // Not MPI_Wtime, which takes simulated time itself.
  bootstrap.clock = [] {
    const std::chrono::duration<double> seconds(simgrid_get_clock());
    return TimePoint(std::chrono::duration_cast<TimePoint::duration>(seconds));
  };
  bootstrap.free_work = true;  // of the host's collectives as well
  return bootstrap;
}

}  // namespace heddle::scale
