// Values by key, at most so many of them: a new one takes the place of the one that was asked for longest
// ago.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace heddle {

template <typename Key, typename Value>
class RecentlyUsed {
 public:
  explicit RecentlyUsed(std::size_t most) : most_(most) {}

  std::size_t size() const { return entries_.size(); }
  void clear() { entries_.clear(); }

  // What `make` gives where there is none yet. Stays where it is until it has to make room, which takes
  // `most` other keys.
  template <typename Make>
  Value& get(const Key& key, Make make) {
    auto found = entries_.find(key);
    if (found == entries_.end()) {
      Entry entry{make(), 0};
      if (entries_.size() >= most_)
        entries_.erase(std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
          return a.second.used < b.second.used;
        }));
      found = entries_.emplace(key, std::move(entry)).first;
    }
    found->second.used = ++uses_;
    return found->second.value;
  }

 private:
  struct Entry {
    Value value;
    std::uint64_t used;  // the number of the last use
  };
  std::size_t most_;
  std::uint64_t uses_ = 0;
  std::map<Key, Entry> entries_;
};

}  // namespace heddle
