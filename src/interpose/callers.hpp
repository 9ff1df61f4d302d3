// Who calls a PMPI function? Part of libheddle_preload.so, so plain C++ without its run-time library.
//
// Open MPI's Fortran bindings have the host's PMPI function do what a program asks for: whoever wants to see the calls of Fortran
// programs has to have a function in every one of its spellings, and to know what MPI_IN_PLACE and handles are in Fortran; or to
// take the PMPI function, behind all of that. But to programs and tools that call it from C a PMPI function is the host's own.
#pragma once

namespace heddle::interpose {

// Whether the code at `address`, to which a PMPI function will return, is of a library that has Fortran bindings. What is found out
// about a library is remembered, and the library stays loaded. Any thread.
bool is_in_fortran_bindings(const void* address);

}  // namespace heddle::interpose
