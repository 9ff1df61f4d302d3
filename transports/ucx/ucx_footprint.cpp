#include "transports/ucx/ucx_footprint.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>

namespace heddle {
namespace {

std::size_t limit_now() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  return limit.rlim_cur;
}

}  // namespace

Descriptors count_descriptors() {
  Descriptors found{0, limit_now()};
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end;
       entry.increment(error))
    ++found.open;
  if (found.open > 0) --found.open;  // the one of this look
  return found;
}

bool has_descriptors(std::size_t count) {
  const int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (lowest < 0) return errno != EMFILE && errno != ENFILE;
  close(lowest);
  return static_cast<std::size_t>(lowest) + count <= limit_now();
}

// From the text that UCX has for people: "lane[0]:  1:tcp/eth0.0 md[1] ...".
std::string lanes_of(ucp_ep_h endpoint) {
  char* text = nullptr;
  std::size_t length = 0;
  FILE* out = open_memstream(&text, &length);
  if (out == nullptr) return "";
  ucp_ep_print_info(endpoint, out);
  (void)std::fclose(out);
  std::istringstream in(std::string(text, length));
  std::free(text);
  std::string lanes;
  for (std::string word; in >> word;) {
    if (!word.starts_with("lane[") || !(in >> word)) continue;
    const std::size_t colon = word.find(':');
    const std::string device =
        word.substr(colon == std::string::npos ? 0 : colon + 1, word.rfind('.') - colon - 1);
    if (device.find('/') == std::string::npos || lanes.find(device) != std::string::npos) continue;
    lanes += (lanes.empty() ? "" : " and ") + device;
  }
  return lanes;
}

}  // namespace heddle
