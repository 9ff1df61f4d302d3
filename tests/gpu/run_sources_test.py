#!/usr/bin/env python3
"""Whether what tests/gpu/build links is whole: it names its sources itself, since where there is a GPU there is no Meson to ask.

    run_sources_test.py --build build/check

Reads the lists in that script, and the symbols of these sources' objects in a build. Exit status 1 names what is used and not there.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What stands in for these in a build; only what they define is the same.
STAND_INS = {'tests/gpu/host_fold_twin.cpp': 'tests/gpu/host_fold.cpp', 'tests/gpu/host_sparse_plain.cpp': 'tests/gpu/host_sparse.cpp'}
EMBEDDED = re.compile(r'heddle_\w+_kernels(_end)?$')  # put in by the assembler


def listed(script, name):
    found = re.search(rf'^{name}=\(([^)]*)\)', script, re.MULTILINE)
    if not found:
        sys.exit(f'tests/gpu/build has no list {name}=(...)')
    return found.group(1).split()


def objects(build, sources):
    """One object of each source, by the source's path in the repository. What is compiled together with others counts if these are
    among `sources` as well."""
    found = {}
    for entry in json.loads((build / 'compile_commands.json').read_text()):
        place = build / entry['output']
        source = pathlib.Path(entry['directory']) / entry['file']
        parts = [source]
        if re.search(r'-unity\d+\.cpp$', source.name):
            parts = [pathlib.Path(part) for part in re.findall(r'^#include *[<"](.*)[">]$', source.read_text(), re.MULTILINE)]
        names = {str(part.resolve().relative_to(ROOT)) for part in parts if part.resolve().is_relative_to(ROOT)}
        if place.exists() and (len(parts) == 1 or names <= set(sources)):
            for name in names:
                found.setdefault(name, place)
    return found


def symbols(place):
    """Those of heddle's that it defines, and those that it wants."""
    defined, wanted = set(), set()
    for line in subprocess.run(['nm', '-C', str(place)], capture_output=True, text=True, check=True).stdout.splitlines():
        kind, name = line[17], line[19:]
        if 'heddle' not in name or EMBEDDED.match(name):
            continue
        (wanted if kind == 'U' else defined).add(name)
    return defined, wanted


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--build', required=True, type=pathlib.Path)
    build = parser.parse_args().build.resolve()
    script = (ROOT / 'tests/gpu/build').read_text()
    sources = listed(script, 'library') + listed(script, 'helpers')
    programs = [f'tests/gpu/{name}.cpp' for name in listed(script, 'programs')]
    by_source = objects(build, sources + programs)
    absent = [source for source in sources + programs if STAND_INS.get(source, source) not in by_source]
    if absent:
        sys.exit(f'not in this build: {", ".join(absent)}')
    defined, wanted = set(), {}
    for source in sources + programs:
        here, wants = symbols(by_source[STAND_INS.get(source, source)])
        defined |= here
        if source not in STAND_INS:
            wanted.update((name, source) for name in wants)
    missing = {name: source for name, source in wanted.items() if name not in defined}
    for name, source in sorted(missing.items()):
        print(f'{source} wants {name}, which no source that tests/gpu/build lists has')
    print(f'{len(sources)} sources and {len(programs)} programs, {len(wanted)} symbols wanted, {len(missing)} missing')
    return 1 if missing else 0


if __name__ == '__main__':
    sys.exit(main())
