#include "sparse/program.hpp"

int main(int argc, char** argv) {
  return heddle::bench::run_sparse_program(argc, argv);
}
