#include "transports/ucx/ucx_footprint.hpp"

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace heddle {

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
