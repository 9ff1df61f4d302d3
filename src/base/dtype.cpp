#include "base/dtype.hpp"

namespace heddle {

const char* dtype_name(DType type) {
  static constexpr const char* kNames[kDTypeCount] = {
      "int8",        "int16",         "int32",          "int64",
      "uint8",       "uint16",        "uint32",         "uint64",
      "float16",     "bfloat16",      "float32",        "float64",
      "long_double", "complex_float", "complex_double", "complex_long_double",
      "float8_e4m3", "float8_e5m2"};
  return kNames[static_cast<int>(type)];
}

const char* op_name(Op op) {
  static constexpr const char* kNames[kOpCount] = {"sum", "prod", "min",  "max", "land",
                                                   "lor", "lxor", "band", "bor", "bxor"};
  return kNames[static_cast<int>(op)];
}

std::string fold_kind_name(FoldKind kind) {
  const int number = kind - 1;
  const int type = number % kDTypeCount;
  std::string text = op_name(static_cast<Op>(number / kDTypeCount));
  text += std::string(" of ") + dtype_name(static_cast<DType>(type));
  constexpr int kIntegers = static_cast<int>(DType::u8);
  if (type < kIntegers) text += std::string(" or ") + dtype_name(static_cast<DType>(type + kIntegers));
  return text;
}

}  // namespace heddle
