// Measured choices kept in files, one for each machine and placement of ranks on it.
#pragma once

#include <optional>
#include <string>

#include "base/status.hpp"
#include "select/selector.hpp"

namespace heddle {

// $XDG_CACHE_HOME/heddle, else $HOME/.cache/heddle; empty where neither is set.
std::string default_cache_folder();

class ChoiceCache {
 public:
  // An empty folder keeps nothing.
  explicit ChoiceCache(std::string folder) : folder_(std::move(folder)) {}

  // Of this key; a name that is the same on every machine.
  std::string path_of(const std::string& key) const;

  // What was kept under `key`: nothing when there is no file, a status that names the file when it is damaged
  // or another key's.
  Result<std::optional<Tuning>> load(const std::string& key) const;

  // Replaces the file at once, so that no reader sees a part. The status names what cannot be written.
  Status save(const std::string& key, const Tuning& tuning) const;

 private:
  std::string folder_;
};

}  // namespace heddle
