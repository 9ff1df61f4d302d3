#include "gpu/kernels/choice.hpp"

#include <string>
#include <string_view>

#include "gpu/kernels/fold.hpp"
#include "gpu/kernels/list.hpp"

namespace heddle::gpu::kernels {
namespace {

#define HEDDLE_ENTRY(family, name, ...) \
  Choice{#name, family, sizeof(__VA_ARGS__::Stored), alignof(__VA_ARGS__::Stored), 1},
#define HEDDLE_FLOAT_ENTRY(name, element, operation) HEDDLE_ENTRY(Family::floats, name, element)
#define HEDDLE_HALF_ENTRY(name, element, operation) HEDDLE_ENTRY(Family::halves, name, element)
#define HEDDLE_FP8_ENTRY(name, element, operation) HEDDLE_ENTRY(Family::fp8, name, element)
#define HEDDLE_INTEGER_ENTRY(name, element, operation) HEDDLE_ENTRY(Family::integers, name, element)
#define HEDDLE_BIT_ENTRY(name, element, operation) HEDDLE_ENTRY(Family::bits, name, element)
constexpr Choice kKernels[] = {HEDDLE_FLOAT_KERNELS(HEDDLE_FLOAT_ENTRY)      //
                               HEDDLE_HALF_KERNELS(HEDDLE_HALF_ENTRY)        //
                               HEDDLE_FP8_KERNELS(HEDDLE_FP8_ENTRY)          //
                               HEDDLE_INTEGER_KERNELS(HEDDLE_INTEGER_ENTRY)  //
                               HEDDLE_BIT_KERNELS(HEDDLE_BIT_ENTRY)};

std::optional<Choice> find(std::string_view name, std::size_t parts) {
  for (Choice choice : kKernels) {
    if (name != choice.name) continue;
    choice.parts = parts;
    return choice;
  }
  return std::nullopt;
}

std::string sized(char letter, DType type) {
  return letter + std::to_string(8 * dtype_size(type));
}

// Sums, products, logical and bitwise operations do not know signs.
std::optional<Choice> choose_integer(DType type, Op op, bool is_signed) {
  const std::string operation = std::string(op_name(op)) + "_";
  if (op == Op::band || op == Op::bor || op == Op::bxor) return find(operation + "u8", dtype_size(type));
  const bool knows_signs = op == Op::min || op == Op::max;
  return find(operation + sized(is_signed && knows_signs ? 'i' : 'u', type), 1);
}

}  // namespace

std::optional<Choice> choose(DType type, Op op) {
  const std::string operation = std::string(op_name(op)) + "_";
  switch (type) {
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::i64:
      return choose_integer(type, op, true);
    case DType::u8:
    case DType::u16:
    case DType::u32:
    case DType::u64:
      return choose_integer(type, op, false);
    case DType::f16:
    case DType::f32:
    case DType::f64:
      return find(operation + sized('f', type), 1);
    case DType::bf16:
      return find(operation + "bf16", 1);
    case DType::e4m3:
      return find(operation + "e4m3", 1);
    case DType::e5m2:
      return find(operation + "e5m2", 1);
    case DType::c32:
      return op == Op::sum ? find("sum_f32", 2) : find(operation + "c32", 1);
    case DType::c64:
      return op == Op::sum ? find("sum_f64", 2) : find(operation + "c64", 1);
    case DType::f80:
    case DType::c80:
      return std::nullopt;
  }
  return std::nullopt;
}

Choice copy_choice() {
  return *find("copy_u8", 1);
}

}  // namespace heddle::gpu::kernels
