#!/usr/bin/env python3
"""Jobs without MPI whose ranks share a host and its /dev/shm, but not the numbers of processes, as in containers: a number means the rank itself, or nobody."""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / 'support'))
import native_ranks  # noqa: E402

SKIPPED = 77
APART = ['unshare', '--pid', '--fork', '--mount-proc']


def run(program, others):
    """Each rank in a namespace of its own, the last one after `others` processes there."""
    command = APART + ['sh', '-c', f'n=0; while [ $n -lt $((RANK * {others})) ]; do /bin/true; n=$((n + 1)); done; '
                       + ('"$0"; exit $?' if others else 'exec "$0"'), program]
    return [f'{"others" if others else "alone"}, rank {rank} failed: {output}'
            for rank, (status, output) in enumerate(native_ranks.run(command, 2, timeout=60)) if status != 0]


def main():
    trial = subprocess.run(APART + ['true'], stderr=subprocess.PIPE, text=True)
    if trial.returncode != 0:
        print('skipped: no PID namespaces (needs root):', trial.stderr.strip())
        return SKIPPED
    program = os.path.abspath(sys.argv[1])
    found = run(program, 0) + run(program, 5)
    print('\n'.join(found) or 'as it should be')
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
