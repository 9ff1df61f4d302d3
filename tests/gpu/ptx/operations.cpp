#include "operations.hpp"

#include <fmt/format.h>

#include <string>
#include <type_traits>
#include <vector>

#include "steps.hpp"

namespace heddle::test::ptx {
namespace {

using Parts = std::vector<std::string_view>;

// The step for the type that a name ends with; null where it has none of these.
template <typename... Ts>
struct Of {
  template <class Make>
  static Step find(std::string_view type, Make make) {
    Step found = nullptr;
    ((found == nullptr && name_of<Ts>(type) ? void(found = make.template operator()<Ts>()) : void()), ...);
    return found;
  }

 private:
  template <typename T>
  static bool name_of(std::string_view type) {
    const std::string bits = std::to_string(8 * sizeof(T));
    if constexpr (std::is_floating_point_v<T>) return type == "f" + bits;
    if constexpr (std::is_signed_v<T>) return type == "s" + bits;
    return type == "u" + bits || type == "b" + bits;
  }
};
using Integers = Of<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t,
                    std::uint64_t, std::int64_t>;
using Unsigned = Of<std::uint16_t, std::uint32_t, std::uint64_t>;
using Floats = Of<float, double>;
using All = Of<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t,
               std::uint64_t, std::int64_t, float, double>;

template <auto kFunction, class Types>
Step find_binary(std::string_view type) {
  return Types::find(type, []<typename T>() -> Step { return &binary<T, kFunction>; });
}
template <auto kFunction, class Types>
Step find_unary(std::string_view type) {
  return Types::find(type, []<typename T>() -> Step { return &unary<T, kFunction>; });
}

// Predicates are words of 0 and 1.
std::string_view as_word(std::string_view type) {
  return type == "pred" ? "u32" : type;
}

Step find_arithmetic(std::string_view operation, std::string_view type) {
  if (operation == "add" || operation == "add.rn") return find_binary<kAdd, All>(type);
  if (operation == "sub" || operation == "sub.rn") return find_binary<kSubtract, All>(type);
  if (operation == "mul.rn" && type == "f16x2") return &multiply_halves;
  if (operation == "mul.lo" || operation == "mul.rn") return find_binary<kMultiply, All>(type);
  if (operation == "div" || operation == "div.rn") return find_binary<kDivide, All>(type);
  if (operation == "fma.rn") return Floats::find(type, []<typename T>() -> Step { return &fused<T>; });
  if (operation == "rcp.rn") return find_unary<kInverse, Floats>(type);
  if (operation == "rem") return find_binary<kRemainder, Integers>(type);
  if (operation == "min") return find_binary<kLeast, All>(type);
  if (operation == "max") return find_binary<kMost, All>(type);
  if (operation == "and") return find_binary<kAnd, Unsigned>(as_word(type));
  if (operation == "or") return find_binary<kOr, Unsigned>(as_word(type));
  if (operation == "xor") return find_binary<kXor, Unsigned>(as_word(type));
  if (operation == "not" && type == "pred") return &unary<std::uint32_t, kNotPredicate>;
  if (operation == "not") return find_unary<kNot, Unsigned>(type);
  if (operation == "neg") return find_unary<kNegate, All>(type);
  if (operation == "abs") return find_unary<kMagnitude, Floats>(type);
  if (operation == "copysign")
    return Floats::find(type, []<typename T>() -> Step {
      return [](Lane& lane, const Instruction& i) {
        set<T>(lane, i.slots[0], kCopySign(source<T>(lane, i, 1), source<T>(lane, i, 2)));
      };
    });
  return nullptr;
}

template <auto kFunction>
Step find_comparison_of(std::string_view type) {
  return All::find(type, []<typename T>() -> Step { return &compare<T, kFunction>; });
}
Step find_comparison(std::string_view name, std::string_view type) {
  if (name == "eq") return find_comparison_of<kEqual>(type);
  if (name == "ne") return find_comparison_of<kUnequal>(type);
  if (name == "lt") return find_comparison_of<kLess>(type);
  if (name == "le") return find_comparison_of<kAtMost>(type);
  if (name == "gt") return find_comparison_of<kMore>(type);
  if (name == "ge") return find_comparison_of<kAtLeast>(type);
  if (name == "equ") return find_comparison_of<kNotUnequal>(type);
  if (name == "leu") return find_comparison_of<kNotMore>(type);
  if (name == "geu") return find_comparison_of<kNotLess>(type);
  if (name == "gtu") return find_comparison_of<kNotAtMost>(type);
  if (name == "num") return find_comparison_of<kNumbers>(type);
  if (name == "nan") return find_comparison_of<kSomeNan>(type);
  return nullptr;
}

Step find_bits(std::string_view operation, std::string_view type) {
  if (operation == "shl") return Unsigned::find(type, []<typename T>() -> Step { return &shift_left<T>; });
  if (operation == "shr") return Integers::find(type, []<typename T>() -> Step { return &shift_right<T>; });
  if (operation == "mul.wide" && type == "u16") return &multiply_wide<std::uint16_t, std::uint32_t>;
  if (operation == "mul.wide" && type == "u32") return &multiply_wide<std::uint32_t, std::uint64_t>;
  if (operation == "mad.lo")
    return Integers::find(type, []<typename T>() -> Step { return &multiply_add<T>; });
  if (operation == "bfi") return Unsigned::find(type, []<typename T>() -> Step { return &insert_bits<T>; });
  if (operation == "bfe" && type == "u32") return &extract_bits<std::uint32_t>;
  if (operation == "bfe" && type == "s32") return &extract_bits<std::int32_t>;
  if (operation == "popc" && type == "b32") return &unary<std::uint32_t, kOnes>;
  if (operation == "prmt" && type == "b32") return &permute;
  return nullptr;
}

Step find_move(std::string_view operation, std::string_view type) {
  if (operation == "mov" || operation == "cvta.to.global")
    return All::find(as_word(type), []<typename T>() -> Step { return &move<T>; });
  if (operation == "selp") return All::find(type, []<typename T>() -> Step { return &choose<T>; });
  if (operation == "pack" && type == "b32") return &pack<std::uint32_t, std::uint16_t>;
  if (operation == "pack" && type == "b64") return &pack<std::uint64_t, std::uint32_t>;
  if (operation == "unpack" && type == "b32") return &unpack<std::uint32_t, std::uint16_t>;
  if (operation == "unpack" && type == "b64") return &unpack<std::uint64_t, std::uint32_t>;
  return nullptr;
}

// Those between integers, and of others the few that there are.
Step find_conversion(std::string_view to, std::string_view from) {
  if (to == "f32" && from == "f16") return &from_half;
  if (to == "rn.f16" && from == "f32") return &to_half;
  if (to == "rz.f16" && from == "f32") return &to_half_towards_zero;
  if (to == "rzi.u32" && from == "f32") return &truncate;
  if (to == "f64" && from == "f32") return &convert<double, float>;
  if (to == "rn.f32" && from == "f64") return &convert<float, double>;
  if (to == "rn.f32" && from == "u32") return &convert<float, std::uint32_t>;
  if (to == "rn.f32" && from == "s32") return &convert<float, std::int32_t>;
  if (to == "rn.f64" && from == "u64") return &convert<double, std::uint64_t>;
  return Integers::find(to, [from]<typename To>() -> Step {
    return Integers::find(from, []<typename From>() -> Step { return &convert<To, From>; });
  });
}

template <Space kSpace>
Step find_access(bool is_load, std::string_view type) {
  if (is_load) return All::find(type, []<typename T>() -> Step { return &load<T, kSpace>; });
  if constexpr (kSpace != Space::parameter)
    return All::find(type, []<typename T>() -> Step { return &store<T, kSpace>; });
  return nullptr;
}
// "ld.global.v4.u32", in parts. An address without a space is that of global memory: no kernel makes others.
Step find_memory(const Parts& parts, Instruction& instruction) {
  const bool is_load = parts[0] == "ld";
  std::size_t n = 1;
  std::string_view space = "global";
  if (parts[n] == "global" || parts[n] == "shared" || parts[n] == "local" || parts[n] == "param")
    space = parts[n++];
  else if ((parts[n] == "relaxed" || parts[n] == (is_load ? "acquire" : "release")) && parts.size() == 4)
    n += 2;
  if (n + 2 == parts.size() && (parts[n] == "v2" || parts[n] == "v4"))
    instruction.width = parts[n++] == "v2" ? 2 : 4;
  if (n + 1 != parts.size()) return nullptr;
  if (space == "shared") return find_access<Space::shared>(is_load, parts[n]);
  if (space == "local") return find_access<Space::local>(is_load, parts[n]);
  if (space == "param") return find_access<Space::parameter>(is_load, parts[n]);
  return find_access<Space::global>(is_load, parts[n]);
}

bool set_meeting(std::string_view name, Instruction& instruction) {
  struct Meeting {
    std::string_view name;
    Kind kind;
  };
  constexpr Meeting kMeetings[] = {{"bra", Kind::branch},
                                   {"bra.uni", Kind::branch},
                                   {"ret", Kind::end},
                                   {"nanosleep.u32", Kind::pause},
                                   {"bar.sync", Kind::block_barrier},
                                   {"bar.warp.sync", Kind::warp_barrier},
                                   {"shfl.sync.up.b32", Kind::shuffle_up},
                                   {"shfl.sync.bfly.b32", Kind::shuffle_xor},
                                   {"shfl.sync.idx.b32", Kind::shuffle_index},
                                   {"vote.sync.ballot.b32", Kind::ballot}};
  for (const Meeting& meeting : kMeetings) {
    if (name != meeting.name) continue;
    instruction.kind = meeting.kind;
    return true;
  }
  return false;
}

Parts parts_of(std::string_view name) {
  Parts parts;
  while (true) {
    const std::size_t dot = name.find('.');
    parts.push_back(name.substr(0, dot));
    if (dot == std::string_view::npos) return parts;
    name.remove_prefix(dot + 1);
  }
}

Step find_step(std::string_view name, Instruction& instruction) {
  if (name == "membar.gl") return &nothing;  // the order of global memory is that of the text
  if (name == "prefetch.global.L2") return &look_at;
  if (name == "globaltimer") return &read_clock;
  if (name == "atom.global.add.u64" || name == "atom.acq_rel.gpu.global.add.u64")
    return &atomic_add<std::uint64_t, Space::global>;
  if (name == "atom.shared.add.u32") return &atomic_add<std::uint32_t, Space::shared>;
  const Parts parts = parts_of(name);
  if (parts.size() < 2) return nullptr;
  if (parts[0] == "ld" || parts[0] == "st") return find_memory(parts, instruction);
  const std::size_t last = name.rfind('.');
  const std::string_view operation = name.substr(0, last);
  const std::string_view type = name.substr(last + 1);
  if (parts[0] == "cvt") return operation.size() > 4 ? find_conversion(operation.substr(4), type) : nullptr;
  if (parts[0] == "setp" && parts.size() == 3) return find_comparison(parts[1], type);
  for (const auto find : {&find_arithmetic, &find_bits, &find_move}) {
    if (const Step step = find(operation, type); step != nullptr) return step;
  }
  return nullptr;
}

}  // namespace

void set_operation(std::string_view name, Instruction& instruction) {
  if (set_meeting(name, instruction)) return;
  instruction.step = find_step(name, instruction);
  if (instruction.step == nullptr) throw Error(fmt::format("there is no instruction {} here", name));
}

}  // namespace heddle::test::ptx
