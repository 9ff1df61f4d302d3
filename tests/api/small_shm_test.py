#!/usr/bin/env python3
"""Jobs without MPI where /dev/shm holds 16 MiB: two ranks with slots of one size on any machine fit, eight are told what to do, and nothing is left there. And where it holds nothing at all."""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / 'support'))
import native_ranks  # noqa: E402

SKIPPED = 77
SMALL = ['unshare', '--mount', 'sh', '-c', 'mount -t tmpfs -o size=16m tmpfs /dev/shm && exec "$@"', 'sh']


def without_any(program, folder):
    """Ranks that cannot share memory in any way are told what is missing and what does without."""
    for hidden in 'mount -t tmpfs -o remount,ro tmpfs /dev/shm', 'mount -t tmpfs tmpfs /proc':
        subprocess.run(hidden.split(), check=True)
    for transports in 'shm,tcp', 'tcp':
        # The loader does not find what lies beside a program without /proc.
        ranks = native_ranks.run([program], 2, timeout=60, HEDDLE_TRANSPORTS=transports, LD_LIBRARY_PATH=folder)
        for rank, (status, output) in enumerate(ranks):
            if transports == 'tcp' and status != 0:
                yield f'without shm, rank {rank} failed: {output}'
            if transports != 'tcp' and (status == 0 or any(word not in output for word in ('/proc/', '/dev/shm', 'HEDDLE_TRANSPORTS=tcp'))):
                yield f'rank {rank}, status {status}, does not say what is missing and what to do: {output}'


def inside(program, folder):
    found = []
    for size, fits in ((2, True), (8, False)):
        for rank, (status, output) in enumerate(native_ranks.run([program], size, timeout=60, HEDDLE_SHM='posix', HEDDLE_SLOT_BYTES='128K')):
            if fits and status != 0:
                found.append(f'rank {rank} of {size} failed: {output}')
            if not fits and (status == 0 or '/dev/shm' not in output or 'HEDDLE_SLOT_BYTES' not in output):
                found.append(f'rank {rank} of {size}, status {status}, does not say what is too small: {output}')
        left = os.listdir('/dev/shm')
        if left:
            found.append(f'left in /dev/shm by {size} ranks: {left}')
    found += without_any(program, folder)
    print('\n'.join(found) or 'as it should be')
    return 1 if found else 0


def main():
    if sys.argv[1] == '--inside':
        return inside(sys.argv[2], sys.argv[3])
    trial = subprocess.run(SMALL + ['true'], stderr=subprocess.PIPE, text=True)
    if trial.returncode != 0:
        print('skipped: no mount namespace for a small /dev/shm (needs root):', trial.stderr.strip())
        return SKIPPED
    return subprocess.run(SMALL + [sys.executable, __file__, '--inside', os.path.abspath(sys.argv[1]), os.path.dirname(os.path.abspath(sys.argv[2]))]).returncode


if __name__ == '__main__':
    sys.exit(main())
