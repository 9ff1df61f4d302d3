#!/usr/bin/env python3
"""A rank whose buffer another of its threads unmaps dies of it, as it would without heddle; the others are told who is gone, and end."""
import os
import signal
import socket
import subprocess
import sys


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return str(s.getsockname()[1])


def main():
    program, kind, size = sys.argv[1], sys.argv[2], 3
    env = {k: v for k, v in os.environ.items() if not k.startswith('HEDDLE_')}
    env |= {'WORLD_SIZE': str(size), 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': free_port()}
    ranks = [subprocess.Popen([program, kind], env=env | {'RANK': str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
             for rank in range(size)]
    try:
        outputs = [rank.communicate(timeout=100)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    found = []
    # A sanitizer catches the signal, says so and exits.
    if ranks[1].returncode != -signal.SIGSEGV and 'SEGV' not in outputs[1]:
        found.append(f'rank 1 did not die of its own mistake: status {ranks[1].returncode}, {outputs[1]}')
    for other in (0, 2):
        if ranks[other].returncode != 3 or 'rank 1 (process' not in outputs[other] or 'is gone' not in outputs[other]:
            found.append(f'rank {other} was not told: status {ranks[other].returncode}, {outputs[other]}')
    print('\n'.join(found) or 'as it should be: ' + outputs[0].strip())
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
