#!/usr/bin/env python3
"""Ranks whose children destroy the communicators that they inherit: the parents' live on, whatever they are made of. And what a child inherits does not
hide the death of its parent."""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / 'support'))
import native_ranks  # noqa: E402

WAYS = {'shared memory': {}, 'a progress thread': {'HEDDLE_PROGRESS_THREAD': 'always'},
        'TCP': {'HEDDLE_TRANSPORTS': 'tcp', 'HEDDLE_PROGRESS_THREAD': '0'}}


def run(program, way, settings, *arguments):
    way = ' '.join([way, *arguments])
    try:
        ranks = native_ranks.run([program, *arguments], 2, timeout=30, HEDDLE_TIMEOUT='10', **settings)
    except subprocess.TimeoutExpired:
        return [f'{way}: still running']
    wanted = [0, -9 if 'dies' in arguments else 0]
    return [f'{way}, rank {rank} ended with {status}: {output}'
            for rank, (status, output) in enumerate(ranks) if status != wanted[rank]]


def main():
    program = os.path.abspath(sys.argv[1])
    found = [line for way, settings in WAYS.items() for arguments in ([], ['dies'])
             for line in run(program, way, settings, *arguments)]
    print('\n'.join(found) or 'as it should be')
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
