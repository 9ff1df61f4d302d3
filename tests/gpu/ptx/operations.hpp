// What PTX's instructions do, by name: "add.s64" and its like.
#pragma once

#include <string_view>

#include "program.hpp"

namespace heddle::test::ptx {

// The kind and step of an instruction, its name without its operands; Error where there is none of that name.
void set_operation(std::string_view name, Instruction& instruction);

}  // namespace heddle::test::ptx
