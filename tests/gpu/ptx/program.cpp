#include "program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <memory>

#include "operations.hpp"

namespace heddle::test::ptx {
namespace {

bool is_space(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && is_space(text.back()))
    text.remove_suffix(1);
  return text;
}

// The first word, which is taken off.
std::string_view take_word(std::string_view& text) {
  text = trim(text);
  std::size_t end = 0;
  while (end < text.size() && !is_space(text[end]))
    ++end;
  const std::string_view word = text.substr(0, end);
  text = trim(text.substr(end));
  return word;
}

// Of a name, in the texts of registers, symbols and labels.
bool in_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' || c == '.';
}

template <typename T>
T to_number(std::string_view text, int base) {
  T number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size())
    throw Error(fmt::format("'{}' is no number", text));
  return number;
}

std::uint64_t constant(std::string_view text) {
  if (text.starts_with("0f") || text.starts_with("0d")) return to_number<std::uint64_t>(text.substr(2), 16);
  if (text.starts_with("0x")) return to_number<std::uint64_t>(text.substr(2), 16);
  if (text.starts_with("-")) return static_cast<std::uint64_t>(to_number<std::int64_t>(text, 10));
  return to_number<std::uint64_t>(text, 10);
}

// What lies between the brackets that `text` has.
std::string_view between(std::string_view text, char open, char close) {
  const std::size_t begin = text.find(open);
  const std::size_t end = text.find(close);
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin)
    throw Error(fmt::format("'{}' lacks {}...{}", text, open, close));
  return text.substr(begin + 1, end - begin - 1);
}

std::size_t round_up(std::size_t number, std::size_t to) {
  return (number + to - 1) / to * to;
}

// A kernel as its lines come.
class KernelParser {
 public:
  explicit KernelParser(std::string_view name) {
    kernel_.name = name;
    add_constant(1);  // kAlways
  }

  // ".param .align 8 .b8 heddle_sum_f16_param_0[1072]", in the parentheses.
  void add_parameter(std::string_view text) {
    if (kernel_.parameter_bytes != 0) throw Error("more than one parameter");
    kernel_.parameter_bytes = declare(text, 0);
  }

  void add_line(std::string_view text, std::uint32_t line) {
    if (text.ends_with(':')) {
      labels_[std::string(text.substr(0, text.size() - 1))] = static_cast<std::uint32_t>(kernel_.code.size());
    } else if (text.starts_with(".shared")) {
      kernel_.shared_bytes = round_up(kernel_.shared_bytes, 16);
      kernel_.shared_bytes += declare(text, kernel_.shared_bytes);
    } else if (text.starts_with(".local")) {
      kernel_.local_bytes = round_up(kernel_.local_bytes, 16);
      kernel_.local_bytes += declare(text, kernel_.local_bytes);
    } else if (text.starts_with("{") && text.ends_with("}")) {
      add_scope(text.substr(1, text.size() - 2), line);
    } else if (!text.starts_with(".reg") && !text.starts_with(".pragma")) {
      add_instruction(text, line);
    }
  }

  Kernel finish() {
    for (const auto& [at, label] : branches_) {
      const auto found = labels_.find(label);
      if (found == labels_.end()) throw Error(fmt::format("no label {}", label));
      kernel_.code[at].target = found->second;
    }
    for (const auto& [name, slot] : names_) {
      if (is_special(name)) kernel_.special.emplace(name, slot);
    }
    return std::move(kernel_);
  }

 private:
  static bool is_special(std::string_view name) { return name.find('.') != std::string_view::npos; }

  // How many bytes an array has. Its name is its offset from then on.
  std::size_t declare(std::string_view text, std::size_t offset) {
    std::string_view rest = text.substr(0, text.find('['));
    std::string_view name;
    while (!rest.empty())
      name = take_word(rest);
    names_[std::string(name)] = add_constant(offset);
    return to_number<std::size_t>(between(text, '[', ']'), 10);
  }

  std::uint32_t add_register() { return static_cast<std::uint32_t>(kernel_.registers++); }
  std::uint32_t add_constant(std::uint64_t value) {
    kernel_.constants.push_back(value);
    return static_cast<std::uint32_t>(kernel_.constants.size() - 1) | kConstant;
  }

  // Of a register, which is where it is named first, of an array, or of a constant.
  std::uint32_t slot_of(std::string_view text) {
    const auto known = names_.find(text);
    if (known != names_.end()) return known->second;
    const bool is_register = text.starts_with('%');
    const std::uint32_t slot = is_register ? add_register() : add_constant(constant(text));
    names_[std::string(text)] = slot;
    return slot;
  }

  // "{ .reg .b16 tmp; mov.b32 {tmp, %rs3}, %r211; }", without its braces: a register of its own may have any
  // name.
  void add_scope(std::string_view text, std::uint32_t line) {
    for (text = trim(text); !text.empty(); text = trim(text)) {
      const std::size_t end = std::min(text.find(';'), text.size() - 1);
      const std::string_view piece = text.substr(0, end + 1);
      text.remove_prefix(end + 1);
      if (piece.starts_with(".reg"))
        names_[std::string(trim(piece.substr(piece.rfind(' '), piece.rfind(';') - piece.rfind(' '))))] =
            add_register();
      else
        add_line(piece, line);
    }
  }

  void add_instruction(std::string_view text, std::uint32_t line) {
    if (!text.ends_with(';')) throw Error("an instruction without its end");
    text.remove_suffix(1);
    Instruction instruction;
    instruction.line = line;
    if (text.starts_with('@')) {
      std::string_view guard = take_word(text).substr(1);
      instruction.unless = guard.starts_with('!');
      if (instruction.unless) guard.remove_prefix(1);
      instruction.guard = slot_of(guard);
    }
    std::string name(take_word(text));
    // Halves of a register stand in braces.
    if (name.starts_with("mov.") && text.find('{') != std::string_view::npos)
      name.replace(0, 3, text.starts_with('{') ? "unpack" : "pack");
    // A clock is no register.
    if (name == "mov.u64" && text.ends_with("%globaltimer")) name = "globaltimer";
    set_operation(name, instruction);
    if (instruction.kind == Kind::branch)
      branches_.emplace_back(kernel_.code.size(), std::string(text));
    else
      add_operands(text, instruction);
    kernel_.code.push_back(instruction);
  }

  // As they stand: "%r1|%p2, %r3, {%r4, %r5}, [%rd6+8], 12". Of an address the offset is apart.
  void add_operands(std::string_view text, Instruction& instruction) {
    unsigned n = 0;
    bool in_address = false;
    for (std::size_t i = 0; i < text.size();) {
      if (text[i] == '[') in_address = true;
      if (!in_name(text[i]) && text[i] != '-' && text[i] != '+') {
        ++i;
        continue;
      }
      const bool is_offset = text[i] == '+';
      std::size_t end = i + 1;
      while (end < text.size() && (in_name(text[end]) || (is_offset && text[end] == '-')))
        ++end;
      const std::string_view operand = text.substr(i, end - i);
      i = end;
      if (is_offset && in_address) {
        instruction.offset = static_cast<std::int64_t>(constant(operand.substr(1)));
        continue;
      }
      if (n == kMostSlots) throw Error("more operands than there are slots");
      instruction.slots[n++] = slot_of(operand);
    }
  }

  Kernel kernel_;
  std::map<std::string, std::uint32_t, std::less<>> names_;
  std::map<std::string, std::uint32_t, std::less<>> labels_;
  std::vector<std::pair<std::size_t, std::string>> branches_;
};

}  // namespace

Program::Program(std::string_view text, std::string name) : name_(std::move(name)) {
  std::unique_ptr<KernelParser> kernel;
  std::string kernel_name;
  bool in_body = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view whole = text.substr(0, end);
    lines_.emplace_back(trim(whole.substr(0, whole.find("//"))));
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string_view line = lines_.back();
    try {
      if (line.starts_with(".visible .entry")) {
        kernel_name = trim(line.substr(15, line.find('(') - 15));
        kernel = std::make_unique<KernelParser>(kernel_name);
      } else if (kernel != nullptr && !in_body && line.starts_with(".param")) {
        kernel->add_parameter(line);
      } else if (kernel != nullptr && line == "{") {
        in_body = true;
      } else if (in_body && line == "}") {
        kernels_.emplace(kernel_name, kernel->finish());
        kernel.reset();
        in_body = false;
      } else if (in_body && !line.empty()) {
        kernel->add_line(line, static_cast<std::uint32_t>(lines_.size()));
      }
    } catch (const Error& error) {
      throw Error(fmt::format("{}: {}", place(static_cast<std::uint32_t>(lines_.size())), error.what()));
    }
  }
}

const Kernel* Program::find(std::string_view kernel) const {
  const auto found = kernels_.find(kernel);
  return found != kernels_.end() ? &found->second : nullptr;
}

std::string Program::place(std::uint32_t line) const {
  return fmt::format("{}:{}: {}", name_, line, lines_.at(line - 1));
}

}  // namespace heddle::test::ptx
