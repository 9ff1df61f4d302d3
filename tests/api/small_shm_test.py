#!/usr/bin/env python3
"""Jobs without MPI where /dev/shm holds 16 MiB: two ranks fit, eight are told what to do, and nothing is left there."""
import os
import socket
import subprocess
import sys

SKIPPED = 77
SMALL = ['unshare', '--mount', 'sh', '-c', 'mount -t tmpfs -o size=16m tmpfs /dev/shm && exec "$@"', 'sh']


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return str(s.getsockname()[1])


def run_ranks(program, size):
    """The exit status and output of each rank."""
    env = {k: v for k, v in os.environ.items() if not k.startswith('HEDDLE_')}
    env |= {'WORLD_SIZE': str(size), 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': free_port(), 'HEDDLE_SHM': 'posix'}
    ranks = [subprocess.Popen([program], env=env | {'RANK': str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
             for rank in range(size)]
    return [(rank.communicate(timeout=60)[0], rank.returncode) for rank in ranks]


def inside(program):
    found = []
    for size, fits in ((2, True), (8, False)):
        for rank, (output, status) in enumerate(run_ranks(program, size)):
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
