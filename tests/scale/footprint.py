#!/usr/bin/env python3
"""What a process holds among many: footprint.py PROGRAM RANKS[,RANKS...] [NAME=VALUE...]

Starts so many processes of PROGRAM (build/tests/scale/footprint) on this machine, each for one rank; each makes a communicator and does
100 allreduces of 4 KiB and 4 bytes in turn. NAME=VALUE: settings, such as HEDDLE_TRANSPORTS=ucx, by which none of them shares memory.
"""
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'support'))
import native_ranks  # noqa: E402


def held(program, size, settings):
    """Of each rank: descriptors, resident KiB now and before, proportional KiB; and the seconds it took."""
    begin = time.monotonic()
    ranks = [subprocess.Popen([program], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
             for env in native_ranks.environments(size, HEDDLE_TIMEOUT='300', **settings)]
    outputs = [rank.communicate()[0] for rank in ranks]
    rows = [[int(word) for word in line.split()[1:]] for output in outputs for line in output.splitlines() if line.startswith('HELD')]
    if len(rows) != size or any(rank.returncode != 0 for rank in ranks):
        wrong = [f'rank {r}: {output.strip()[-300:]}' for r, output in enumerate(outputs) if 'HELD' not in output]
        raise SystemExit(f'{size} ranks: {len(rows)} of them finished; ' + '; '.join(wrong[:3]))
    return rows, time.monotonic() - begin


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    settings = dict(word.split('=', 1) for word in sys.argv[3:])
    print(f'{"ranks":>6} {"descriptors":>12} {"resident KiB":>13} {"before":>7} {"shared out KiB":>15} {"seconds":>8}')
    for size in map(int, sys.argv[2].split(',')):
        rows, seconds = held(sys.argv[1], size, settings)
        descriptors, resident, before, proportional = zip(*rows)
        print(f'{size:6} {max(descriptors):12} {statistics.median(resident):13.0f} {statistics.median(before):7.0f} '
              f'{statistics.median(proportional):15.0f} {seconds:8.1f}', flush=True)


if __name__ == '__main__':
    main()
