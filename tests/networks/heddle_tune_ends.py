#!/usr/bin/env python3
"""heddle-tune on four hosts (support/hosts.py): every rank ends once the file is out, which MPICH up to 4.1 leaves to luck.

    heddle_tune_ends.py HEDDLE-TUNE MPIEXEC

Exit status 77: skipped, and why is said.
"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / 'support'))
import hosts  # noqa: E402

SKIPPED = 77
HOSTS = 4
RUNS = 5  # of a program that does not see to it, half hang
SECONDS = 20


def tune(several, program, launcher, file, budget=0.5):
    """What it said, or None if it had to be killed. On a busy machine it needs a larger budget to decide anything."""
    command = [*several.mpiexec(launcher, HOSTS), '-n', str(HOSTS), program, '-o', file, '-m', '8:8', '-t', str(budget)]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        said, _ = job.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        job.send_signal(signal.SIGINT)  # mpiexec ends the ranks
        try:
            job.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
        return None
    if 'too short to decide any size' in said and budget < SECONDS / 4: return tune(several, program, launcher, file, 2 * budget)
    assert job.returncode == 0, said
    return said


def main():
    program, launcher = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, 'tuning.json')
        try:
            with hosts.Hosts(HOSTS) as several:
                for run in range(1, RUNS + 1):
                    said = tune(several, program, launcher, file)
                    assert said is not None, f'run {run} does not end; its file is {"there" if os.path.exists(file) else "missing"}'
                    assert f'{HOSTS} ranks on {HOSTS} nodes' in said and os.path.exists(file), said
        except OSError as problem:
            print('skipped: no network namespaces for several hosts (needs root and iproute2):', problem)
            return SKIPPED
    return 0


if __name__ == '__main__':
    sys.exit(main())
