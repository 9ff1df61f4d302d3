#!/usr/bin/env python3
"""Runs guest.py in a virtual machine with Soft-RoCE (machine.py), and says how each case went. Skipped, with the reason, where that
machine cannot be made or does not boot."""
import argparse
import os
import pathlib
import shlex
import subprocess
import sys
import time

import machine

SKIPPED = 77  # what Meson takes for it


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--folder', required=True, help='what the machine is made of is kept here')
    parser.add_argument('--deadline', type=float, default=1000, help='seconds until the machine is ended')
    parser.add_argument('guest', nargs='+', help="guest.py's arguments, after --")
    args = parser.parse_args()
    try:
        folder = machine.prepare(args.folder)
    except (machine.Missing, OSError, subprocess.SubprocessError) as problem:
        print(f'skipped: no virtual machine: {problem}')
        return SKIPPED

    begin = time.monotonic()
    cases = []
    failed = []  # with what they said, which is far above the end by then

    def show(line):
        print(f'{time.monotonic() - begin:6.1f} {line}', flush=True)
        if line.startswith('CASE '):
            cases.append(line.split()[2])
            if cases[-1] == 'FAILED':
                failed.append(line)

    # In the machine they are run from somewhere else.
    arguments = [str(pathlib.Path(a).resolve()) if pathlib.Path(a).exists() else a for a in args.guest]
    guest = [sys.executable, str(pathlib.Path(__file__).with_name('guest.py').resolve()), *arguments]
    if 'RDMA_TEST_PART' in os.environ:
        guest += ['--part', os.environ['RDMA_TEST_PART']]
    console = folder / 'console.log'
    status = machine.run(folder, shlex.join(guest), args.deadline, console, show)
    for line in failed:
        print(line)
    print(f'{cases.count("passed")} passed, {cases.count("FAILED")} failed, {cases.count("skipped")} skipped, '
          f'{time.monotonic() - begin:.0f} s; the console is in {console}')
    if status is None and 'MACHINE UP' not in console.read_text():
        print(f'skipped: the virtual machine did not boot within {args.deadline:.0f} s')
        return SKIPPED
    return 0 if status == 0 and cases else 1


if __name__ == '__main__':
    sys.exit(main())
