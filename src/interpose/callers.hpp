// Who calls a PMPI function? Part of libheddle_preload.so, so plain C++ without its run-time library.
//
// Open MPI's Fortran bindings have the host's PMPI function do what a program asks for: whoever wants to see
// the calls of Fortran programs has to have a function in every one of its spellings, and to know what
// MPI_IN_PLACE and handles are in Fortran; or to take the PMPI function, behind all of that. Tools' functions
// end in one too, when they have counted a call; and a tool may be on some ranks alone, so what it passes on
// has to be served as the others' calls are. But to programs that call it from C a PMPI function is the
// host's own.
#pragma once

namespace heddle::interpose {

// Whether the code at `address`, to which a PMPI function will return, is of a library that programs call as
// their MPI: Fortran bindings, or a tool. (A tool's that ends with a jump to the PMPI function is not seen:
// that returns to the program.) What is found out about a library is remembered, and the library stays
// loaded. Any thread.
bool is_in_front_of_mpi(const void* address);

}  // namespace heddle::interpose
