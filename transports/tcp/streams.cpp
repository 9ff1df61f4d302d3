// The bytes of a connection: frames out, frames in.
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "transports/tcp/tcp_transport.hpp"

namespace heddle::tcp {
namespace {

// Messages.
constexpr std::size_t kMostAtOnce = 16;

iovec part(const void* data, std::size_t bytes) {
  return {const_cast<void*>(data), bytes};
}

// What is to go of so many messages at the front of the queue, in how many parts.
std::size_t gather(const Peer& peer, std::size_t messages, iovec* parts) {
  std::size_t count = 0;
  std::size_t gone = peer.sent;
  for (std::size_t i = 0; i < messages; ++i, gone = 0) {
    const Sending& each = peer.queue[i];
    if (gone < sizeof each.frame)
      parts[count++] = part(reinterpret_cast<const std::byte*>(&each.frame) + gone, sizeof each.frame - gone);
    const std::size_t of_payload = gone - std::min(gone, sizeof each.frame);
    if (each.payload() > of_payload)
      parts[count++] = part(each.data + of_payload, each.payload() - of_payload);
  }
  return count;
}

// So many bytes more have gone. How many messages that ends.
std::size_t took(Peer& peer, std::size_t bytes) {
  std::size_t ended = 0;
  peer.sent += bytes;
  while (peer.sends() && peer.sent >= peer.queue.front().length()) {
    const Sending& first = peer.queue.front();
    peer.sent -= first.length();
    if (first.ticket != nullptr) first.ticket->done = true;
    peer.queue.pop();
    ++ended;
  }
  return ended;
}

// By the peer, not by what is between it and this rank.
bool was_ended(int error) {
  return error == ECONNRESET || error == EPIPE;
}

}  // namespace

// As much as the socket takes, of so many messages, several of them by one call.
void TcpTransport::push(Peer& peer, std::size_t most) {
  std::size_t at_once = kMostAtOnce;
  while (peer.state == Peer::State::connected && peer.sends() && most > 0) {
    iovec parts[2 * kMostAtOnce];
    msghdr message{};
    message.msg_iov = parts;
    const std::size_t together = std::min({at_once, most, peer.queue.size()});
    message.msg_iovlen = gather(peer, together, parts);
    const ssize_t put = ::sendmsg(peer.socket.fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) return watch_for_room(peer, true);
    if (put < 0 && errno == EFAULT && together > 1) {
      at_once = 1;  // which of them it is
      continue;
    }
    if (put < 0 && errno == EFAULT) {
      // Room is not what it waits for.
      watch_for_room(peer, false);
      const Sending& first = peer.queue.front();
      return blame_buffer(peer, "sent to", std::min(first.payload(), first.length() - peer.sent));
    }
    if (put < 0) {
      const int error = errno;
      // What it sent before it left is still to be read: for whose sake.
      for (int i = 0; i < kMostReadsAtEnd && peer.state == Peer::State::connected; ++i)
        pull(peer);
      if (peer.state == Peer::State::connected)
        fail(peer, system_error("send", error).message(), was_ended(error));
      return;
    }
    moved_ += static_cast<std::uint64_t>(put);
    most -= took(peer, static_cast<std::size_t>(put));
  }
  if (peer.state == Peer::State::connected) watch_for_room(peer, false);
}

// What is there, or a part of it: as long as more is expected and more may be there.
void TcpTransport::pull(Peer& peer) {
  while (peer.state == Peer::State::connected && error_.ok()) {
    Arriving& arriving = peer.arriving;
    // Straight to where it belongs, and what comes behind it into the buffer.
    const std::size_t direct = arriving.to != nullptr ? arriving.left : 0;
    iovec parts[2] = {part(arriving.to, direct),
                      part(peer.buffer.data() + peer.buffered, kBuffer - peer.buffered)};
    msghdr message{};
    message.msg_iov = parts + (direct == 0 ? 1 : 0);
    message.msg_iovlen = direct == 0 ? 1 : 2;
    const std::size_t asked = direct + kBuffer - peer.buffered;
    const ssize_t got = ::recvmsg(peer.socket.fd(), &message, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got < 0 && errno == EFAULT) return blame_buffer(peer, "received from", direct);
    if (const int error = errno; got < 0)
      return fail(peer, system_error("recv", error).message(), was_ended(error));
    if (got == 0) return fail(peer, "the connection was closed", true);
    const auto bytes = static_cast<std::size_t>(got);
    moved_ += bytes;
    const std::size_t taken = std::min(bytes, direct);
    if (taken > 0) {
      arriving.to += taken;
      arriving.left -= taken;
      if (arriving.left == 0) end_arriving(peer);
    }
    parse(peer, bytes - taken);
    if (bytes < asked || !peer.receives()) return;
  }
}

// `bytes` more are in the buffer.
void TcpTransport::parse(Peer& peer, std::size_t bytes) {
  const std::byte* at = peer.buffer.data();
  const std::byte* const end = at + peer.buffered + bytes;
  Arriving& arriving = peer.arriving;
  while (error_.ok() && peer.state == Peer::State::connected) {
    const auto left = static_cast<std::size_t>(end - at);
    if (arriving.left > 0) {
      const std::size_t taken = std::min(arriving.left, left);
      if (taken == 0) break;
      if (arriving.to != nullptr) {
        std::memcpy(arriving.to, at, taken);
        arriving.to += taken;
      }
      at += taken;
      arriving.left -= taken;
      if (arriving.left == 0) end_arriving(peer);
      continue;
    }
    Frame frame{};
    if (left < sizeof frame) break;
    std::memcpy(&frame, at, sizeof frame);
    at += sizeof frame;
    begin(peer, frame);
  }
  peer.buffered = static_cast<std::size_t>(end - at);
  if (peer.buffered > 0) std::memmove(peer.buffer.data(), at, peer.buffered);
}

void TcpTransport::begin(Peer& peer, const Frame& frame) {
  switch (frame.kind) {
    case Kind::data:
      return begin_data(peer, frame);
    case Kind::announce:
      return hear_announcement(peer, frame);
    case Kind::ready:
      peer.ready.push_back(frame.tag);
      release(peer, frame.tag);
      if (peer.sends()) activate(peer);
      return;
    case Kind::farewell:
      peer.left_for = {static_cast<int>(frame.tag), static_cast<std::uint32_t>(frame.bytes)};
      return;
  }
  fail(peer, fmt::format("what it sent is no frame (kind {})", static_cast<std::uint32_t>(frame.kind)));
}

void TcpTransport::begin_data(Peer& peer, const Frame& frame) {
  for (std::size_t i = 0; i < peer.open.size(); ++i) {
    const Receiving receive = peer.open[i];
    if (receive.tag != frame.tag) continue;
    if (receive.bytes != frame.bytes) return wrong_length(peer, frame.bytes, receive.bytes);
    peer.open.erase(i);
    peer.arriving = {receive.bytes, receive.data, receive.ticket, nullptr};
    if (frame.bytes == 0) end_arriving(peer);
    return;
  }
  // A long one comes only where it is called: its receive may have been given up since.
  if (frame.bytes > kEager) {
    const auto call = std::find(peer.called.begin(), peer.called.end(), frame.tag);
    if (call == peer.called.end())
      return fail(peer, fmt::format("what it sent is no frame ({} bytes that nobody called)", frame.bytes));
    peer.called.erase(call);
  }
  // One byte at least, so that it has a place of its own.
  std::unique_ptr<std::byte[]> data(new (std::nothrow) std::byte[std::max<std::size_t>(frame.bytes, 1)]);
  if (data == nullptr) {
    error_ = Status(Code::out_of_memory, fmt::format("no memory for {} bytes that rank {} on {} has sent",
                                                     frame.bytes, peer.rank, peer.place.host));
    return;
  }
  peer.arriving = {frame.bytes, data.get(), nullptr, data.get()};
  std::size_t i = 0;
  // A long one comes unasked where its receive was opened and given up.
  while (i < peer.early.size() && !(peer.early[i].announced && peer.early[i].tag == frame.tag))
    ++i;
  if (i == peer.early.size())
    peer.early.push({});
  else
    peer.kept -= peer.early[i].kept();
  peer.early[i] = {frame.tag, frame.bytes, std::move(data), false, false};
  peer.kept += peer.early[i].kept();
  if (frame.bytes == 0) end_arriving(peer);
}

// It speaks of the first message of its tag that has not come: see release().
void TcpTransport::hear_announcement(Peer& peer, const Frame& frame) {
  for (std::size_t i = 0; i < peer.open.size(); ++i) {
    if (peer.open[i].tag != frame.tag) continue;
    if (peer.open[i].bytes != frame.bytes) wrong_length(peer, frame.bytes, peer.open[i].bytes);
    return;
  }
  peer.early.push({frame.tag, frame.bytes, nullptr, true, false});
  peer.kept += peer.early.back().kept();
}

void TcpTransport::end_arriving(Peer& peer) {
  if (peer.arriving.ticket != nullptr) peer.arriving.ticket->done = true;
  for (std::size_t i = 0; peer.arriving.early != nullptr && i < peer.early.size(); ++i) {
    if (peer.early[i].data.get() == peer.arriving.early) peer.early[i].complete = true;
  }
  peer.arriving = {};
}

}  // namespace heddle::tcp
