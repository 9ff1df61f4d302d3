// Values as people write them: sizes, lists, names nearly spelled right.
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace heddle {

// Letters of ASCII alone.
std::string lower(std::string_view text);

// A value as it goes into a one-line message: in quotation marks, with '?' for control characters, and cut
// where it is long.
std::string quoted(std::string_view value);

// Changes of one letter that lead from one to the other. Takes time in proportion to the product of the
// lengths.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The parts of a value that is a list: "shm,mpi" to shm, mpi. They point into `text`; an empty text is one
// empty part.
std::vector<std::string_view> split_list(std::string_view text);

// "64K", "1M", "128" to bytes (suffixes K, M, G: powers of 1024). Nothing for anything else or on overflow.
std::optional<std::size_t> parse_size(std::string_view text);

// All of the text is the number, as std::from_chars reads it, which takes the base of a whole number as well.
template <typename T, typename... Base>
std::optional<T> parse_number(std::string_view text, Base... base) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base...);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace heddle
