#!/usr/bin/env python3
"""Jobs without MPI whose ranks share a host and its /dev/shm, but not the numbers of processes, as in containers: a number means the rank itself, or nobody."""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / 'support'))
import native_ranks  # noqa: E402

SKIPPED = 77
APART = ['unshare', '--pid', '--fork', '--kill-child', '--mount-proc']
# Nor is there a /proc that would tell which namespace it is.
WITHOUT_PROC = APART + ['sh', '-c', 'mount -t tmpfs none /proc && exec "$@"', 'sh']
DIED = 128 + 9


def run(apart, program, others, *arguments, descriptors=1024):
    """Each rank in a namespace of its own, the last one after `others` processes there and with `descriptors`."""
    command = apart + ['sh', '-c', f'[ $RANK = 2 ] && ulimit -n {descriptors}; n=0; while [ $n -lt $((RANK * {others})) ]; do /bin/true; n=$((n + 1)); done; '
                       + ('"$@"; exit $?' if others else 'exec "$@"'), 'sh', program]
    what = f'{"without /proc, " if apart is WITHOUT_PROC else ""}{others} others {" ".join(arguments)}'
    try:
        # Without /proc the loader does not find what lies beside a program.
        ranks = native_ranks.run(command + list(arguments), 3, timeout=30, LD_LIBRARY_PATH=os.path.dirname(os.path.abspath(sys.argv[2])))
    except subprocess.TimeoutExpired:
        return [f'{what}: still running']
    wanted = [0, 0, DIED if 'dies' in arguments else 0]
    return [f'{what}: rank {rank} ended with {status}: {output}'
            for rank, (status, output) in enumerate(ranks) if status != wanted[rank]]


def main():
    trial = subprocess.run(APART + ['true'], stderr=subprocess.PIPE, text=True)
    if trial.returncode != 0:
        print('skipped: no PID namespaces (needs root):', trial.stderr.strip())
        return SKIPPED
    program = os.path.abspath(sys.argv[1])
    found = []
    for apart in APART, WITHOUT_PROC:
        found += run(apart, program, 0) + run(apart, program, 5) + run(apart, program, 5, 'dies')
    # Whose end cannot be told for want of descriptors is not taken for gone.
    found += run(APART, program, 5, descriptors=100)
    print('\n'.join(found) or 'as it should be')
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
