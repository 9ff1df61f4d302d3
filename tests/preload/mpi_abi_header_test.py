#!/usr/bin/env python3
"""Compares all that the backend's mpi.h for the MPI standard's ABI declares with what a library's mpi.h says.

    mpi_abi_header_test.py FOLDER_OF_OURS FOLDER_OF_THEIRS COMPILER...

A program that prints every value and type is made from the names in ours, and compiled with each.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

PROGRAM = r'''
#include <mpi.h>
#include <cstddef>
#include <cstdio>
#include <type_traits>
#include <typeinfo>

template <typename T>
void value(const char* name, T what) {
  std::printf("%s = %lld%s%s\n", name, (long long)what, std::is_pointer_v<T> ? " of " : "", std::is_pointer_v<T> ? typeid(T).name() : "");
}
#define VALUE(it) value(#it, it)
#define TYPE(it) std::printf("%s: %zu bytes, %s\n", #it, sizeof(it), typeid(it).name())
#define FUNCTION(it) std::printf("%s: %s\n", #it, typeid(it).name())
#define MEMBER(it) std::printf("MPI_Status.%s: at %zu\n", #it, offsetof(MPI_Status, it))

int main() {
%s
}
'''


def program(header):
    text = re.sub(r'/\*.*?\*/', '', header.read_text(), flags=re.S)
    values = re.findall(r'#define (MPI_\w+)', text)
    functions = re.findall(r'\b(PMPI_\w+)\(', text)
    types = re.findall(r'^(?:typedef .*?|\} )\b(MPI_\w+);', text, flags=re.M)
    signatures = re.findall(r'^typedef \w+\s?\((MPI_\w+)\)', text, flags=re.M)
    members = re.findall(r'^  int (MPI_\w+)', text, flags=re.M)
    if min(len(values) - 90, len(functions) - 45, len(types) - 10, len(signatures) - 1, len(members) - 3) < 0:
        sys.exit(f'cannot read {header}: {len(values)} values, {len(functions)} functions, {len(types)} types, {len(signatures)} signatures')
    lines = [f'VALUE({name});' for name in values] + [f'TYPE({name});' for name in types]
    lines += [f'FUNCTION({name});' for name in functions + signatures] + [f'MEMBER({name});' for name in members]
    return PROGRAM.replace('%s\n}', '\n'.join(lines) + '\n}')


def says(source, include, compiler, folder):
    binary = folder / 'print'
    subprocess.run([*compiler, '-std=c++20', '-w', '-DMPI_ABI', '-I', str(include), str(source), '-o', str(binary)], check=True)
    return subprocess.run([str(binary)], check=True, capture_output=True, text=True).stdout.splitlines()


def main():
    ours, theirs, *compiler = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        source = folder / 'print.cpp'
        source.write_text(program(pathlib.Path(ours) / 'mpi.h'))
        pairs = list(zip(says(source, ours, compiler, folder), says(source, theirs, compiler, folder), strict=True))
    different = [f'ours: {a}\ntheirs: {b}' for a, b in pairs if a != b]
    print('\n'.join(different) or f'{len(pairs)} values and types are the same')
    return 1 if different else 0


if __name__ == '__main__':
    sys.exit(main())
