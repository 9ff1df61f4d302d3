#!/usr/bin/env python3
"""Prints the headers of a source tree that are to be compiled on their own, a line each. Argument: the tree.

Left out are headers that a source of the same name includes before anything else, and those that Highway includes once for each instruction
set (*_inl.hpp), which cannot stand alone.
"""
import pathlib
import re
import sys

FOLDERS = ('include', 'src', 'collectives', 'transports', 'gpu')
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def begins_with(source, header):
    first = INCLUDE.search(source.read_text()) if source.exists() else None
    return first is not None and header.as_posix().endswith('/' + first[1])


def main():
    root = pathlib.Path(sys.argv[1])
    found = [path for folder in FOLDERS for end in ('*.hpp', '*.h') for path in (root / folder).rglob(end)]
    for path in sorted(found):
        if not path.name.endswith('_inl.hpp') and not begins_with(path.with_suffix('.cpp'), path):
            print(path.relative_to(root))


if __name__ == '__main__':
    main()
