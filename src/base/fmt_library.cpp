// fmt 9, compiled once. Its headers alone would cost every source file that formats three seconds, and six
// under a sanitizer; its shared library would be one more thing to find on each machine. fmt's own source
// does the same, which distributions do not ship.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

// What the headers promise somebody has compiled.
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
template auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;

}  // namespace detail
FMT_END_NAMESPACE
