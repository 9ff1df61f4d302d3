#!/usr/bin/env python3
"""Jobs without MPI where /dev/shm holds 16 MiB: two ranks fit, eight are told what to do, and nothing is left there."""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / 'support'))
import native_ranks  # noqa: E402

SKIPPED = 77
SMALL = ['unshare', '--mount', 'sh', '-c', 'mount -t tmpfs -o size=16m tmpfs /dev/shm && exec "$@"', 'sh']


def inside(program):
    found = []
    for size, fits in ((2, True), (8, False)):
        for rank, (status, output) in enumerate(native_ranks.run([program], size, timeout=60, HEDDLE_SHM='posix')):
            if fits and status != 0:
                found.append(f'rank {rank} of {size} failed: {output}')
            if not fits and (status == 0 or '/dev/shm' not in output or 'HEDDLE_SLOT_BYTES' not in output):
                found.append(f'rank {rank} of {size}, status {status}, does not say what is too small: {output}')
        left = os.listdir('/dev/shm')
        if left:
            found.append(f'left in /dev/shm by {size} ranks: {left}')
    print('\n'.join(found) or 'as it should be')
    return 1 if found else 0


def main():
    if sys.argv[1] == '--inside':
        return inside(sys.argv[2])
    trial = subprocess.run(SMALL + ['true'], stderr=subprocess.PIPE, text=True)
    if trial.returncode != 0:
        print('skipped: no mount namespace for a small /dev/shm (needs root):', trial.stderr.strip())
        return SKIPPED
    return subprocess.run(SMALL + [sys.executable, __file__, '--inside', os.path.abspath(sys.argv[1])]).returncode


if __name__ == '__main__':
    sys.exit(main())
