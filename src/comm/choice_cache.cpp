#include "comm/choice_cache.hpp"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "base/hash.hpp"
#include "base/whole_file.hpp"

namespace heddle {

std::string default_cache_folder() {
  const auto from = [](const char* name, const char* rest) -> std::string {
    const char* value = std::getenv(name);
    return value != nullptr && value[0] == '/' ? std::string(value) + rest : std::string();
  };
  const std::string xdg = from("XDG_CACHE_HOME", "/heddle");
  return xdg.empty() ? from("HOME", "/.cache/heddle") : xdg;
}

std::string ChoiceCache::path_of(const std::string& key) const {
  return fmt::format("{}/choices-{:016x}.json", folder_, fnv1a(key));
}

Result<std::optional<Tuning>> ChoiceCache::load(const std::string& key) const {
  using Found = std::optional<Tuning>;
  std::error_code error;
  const std::string path = path_of(key);
  if (folder_.empty() || !std::filesystem::exists(path, error)) return Found();
  const Result<std::string> text = tuning_text(path);
  if (!text.ok()) return text.status();
  Result<Tuning> tuning = parse_tuning(text.value(), key);
  if (!tuning.ok()) return Status(tuning.status().code(), path + ": " + tuning.status().message());
  return Found(std::move(tuning).value());
}

Status ChoiceCache::save(const std::string& key, const Tuning& tuning) const {
  if (folder_.empty()) return Status(Code::invalid_argument, "neither XDG_CACHE_HOME nor HOME is set");
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) return Status(Code::system, folder_ + " cannot be made: " + error.message());
  return replace_file(path_of(key), write_tuning(tuning, key));
}

}  // namespace heddle
