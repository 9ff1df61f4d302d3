#!/usr/bin/env python3
"""Runs jobs of the preload library under another MPI with MPICH's ABI (Intel MPI, MVAPICH, Cray MPICH, another MPICH) than the one that heddle was built beside:
whether heddle is right there can be seen before it is trusted.

    tests/preload/under_mpi.py --build build/check --prefix /opt/intel/oneapi/mpi/latest
    tests/preload/under_mpi.py --build build/check --prefix ~/mpich-5 'conformance-[23]$'

They are the tests of suite `preload` of a build (-Dmpich=enabled), with that MPI's library and mpiexec in place of the build's. What else the MPI wants from its environment
(I_MPI_ROOT, FI_PROVIDER_PATH) has to be set. Jobs with several hosts need root. Exit status: 1 where a job is wrong, 77 where there is none.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
# What MPI programs of Debian's MPICH, and of everybody else's, ask the dynamic linker for.
NAMES = {'mpi': ['libmpi.so.12', 'libmpich.so.12'], 'mpifort': ['libmpifort.so.12', 'libmpichfort.so.12']}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--build', required=True, type=pathlib.Path, help='a build of heddle')
    parser.add_argument('--prefix', required=True, type=pathlib.Path, help="the other MPI's folder, with bin/ and lib/")
    parser.add_argument('--mpiexec', type=pathlib.Path, help='its mpiexec (default: mpiexec.hydra or mpiexec in bin/)')
    parser.add_argument('pattern', nargs='?', default='.', help='a regular expression: the names of tests (default: all)')
    args = parser.parse_args()
    args.build, args.prefix = args.build.resolve(), args.prefix.resolve()
    if not (args.build / 'build.ninja').exists():
        parser.error(f'--build {args.build}: that is no build folder of Meson')
    candidates = [args.mpiexec] if args.mpiexec else [args.prefix / 'bin' / name for name in ('mpiexec.hydra', 'mpiexec')]
    args.mpiexec = next((path for path in candidates if path.exists()), None)
    if not args.mpiexec:
        parser.error(f'{candidates[-1]}: no such file; --mpiexec says where it is')
    return args


def library(prefix, name):
    """The library of that MPI that has MPICH's ABI."""
    found = sorted(prefix.glob(f'lib*/**/lib{name}.so.12'))
    return found[0].resolve() if found else None


def stand_ins(prefix, folder):
    """Fills the folder with that MPI's libraries, under the names that programs ask for."""
    place = library(prefix, 'mpi')
    if not place:
        sys.exit(f'--prefix {prefix}: there is no libmpi.so.12 below lib/, so this MPI does not have MPICH\'s ABI')
    # All that is beside it: it may look for others there, by $ORIGIN.
    for entry in place.parent.iterdir():
        (folder / entry.name).symlink_to(entry)
    for name, wanted in NAMES.items():
        place = library(prefix, name)
        for link in wanted if place else []:
            if not (folder / link).exists():
                (folder / link).symlink_to(place)


def check_linking(program, environment, folder):
    """That what runs is the other MPI."""
    for line in subprocess.run(['ldd', program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout.splitlines():
        if re.search(r'libmpi(ch)?\.so', line) and str(folder) not in line or 'not found' in line:
            sys.exit(f'{program} does not run with that MPI: {line.strip()}')


def jobs(build, pattern):
    """Commands and environments of the jobs that ran under MPICH in that build."""
    for test in json.loads(subprocess.check_output(['meson', 'introspect', '--tests', str(build)])):
        place = next((i for i, word in enumerate(test['cmd']) if word == '--mpiexec'), None)
        if not any(suite.endswith('preload') for suite in test['suite']) or place is None or not re.search(pattern, test['name']):
            continue
        if re.search('open-mpi|mpi-abi', test['name']) or 'mpiexec' not in test['cmd'][place + 1]:
            continue
        yield test['name'], test['cmd'], place + 1, test['env']


def main():
    args = parse()
    done = wrong = skipped = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        stand_ins(args.prefix, folder)
        for test, command, place, settings in jobs(args.build, args.pattern):
            environment = dict(os.environ, **settings)
            environment['LD_LIBRARY_PATH'] = ':'.join(filter(None, [name, os.environ.get('LD_LIBRARY_PATH'), settings.get('LD_LIBRARY_PATH')]))
            check_linking(args.build / command[command.index('--') + 1], environment, folder)
            # Intel's would fill the first host.
            if 'hosts' in test:
                environment.setdefault('I_MPI_PERHOST', '1')
            command[place] = str(args.mpiexec)
            begin = time.monotonic()
            run = subprocess.run(command, env=environment, cwd=args.build, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            done += 1
            verdict = {0: 'ok', SKIPPED: 'skipped'}.get(run.returncode, f'FAILED ({run.returncode})')
            print(f'{test:55} {verdict:12} {time.monotonic() - begin:6.1f} s', flush=True)
            skipped += run.returncode == SKIPPED
            if run.returncode not in (0, SKIPPED):
                wrong += 1
                print('    ' + '\n    '.join(run.stdout.splitlines()[-20:]), flush=True)
    print(f'{done - wrong - skipped} ok, {wrong} failed, {skipped} skipped')
    if done == 0:
        print(f'skipped: no job of suite preload is called {args.pattern} in {args.build}')
    return 1 if wrong else SKIPPED if done == skipped else 0


if __name__ == '__main__':
    sys.exit(main())
