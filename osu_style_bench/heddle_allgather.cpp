#include "common/program.hpp"

int main(int argc, char** argv) {
  return heddle::bench::run_program(heddle::bench::Kind::allgather, argc, argv);
}
