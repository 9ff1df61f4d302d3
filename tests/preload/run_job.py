#!/usr/bin/env python3
"""Runs one MPI job for a test, kills all of it when it takes too long, and looks at how it ended and what it said."""
import argparse
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / 'support'))
import hosts  # noqa: E402


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--mpiexec', required=True)
    parser.add_argument('--preload', default='', help='the library to preload; empty for none')
    parser.add_argument('-n', type=int, default=1, help='number of ranks')
    parser.add_argument('--timeout', type=float, default=100, help='seconds until the job is killed and the test fails')
    parser.add_argument('--env', action='append', default=[], metavar='NAME=VALUE')
    parser.add_argument('--env-on', action='append', default=[], metavar='RANK:NAME=VALUE', help='for one rank only')
    parser.add_argument('--no-preload-on', type=int, action='append', default=[], metavar='RANK')
    parser.add_argument('--fails', action='store_true', help='the job must end with an error')
    parser.add_argument('--says', action='append', default=[], metavar='REGEX', help='must be in the output')
    parser.add_argument('--says-once', action='append', default=[], metavar='REGEX', help='in exactly one line')
    parser.add_argument('--silent', action='store_true', help='no output line may come from heddle')
    parser.add_argument('--kill-on', default='', metavar='REGEX', help='SIGKILL the process whose PID follows this text')
    parser.add_argument('--clean-shm', action='store_true', help='nothing new may stay in /dev/shm')
    parser.add_argument('--small-shm', action='store_true', help='with a /dev/shm of its own that holds little (skipped where that is not allowed)')
    parser.add_argument('--hosts', type=int, default=0, metavar='N', help='spread over this many hosts (hosts.py; skipped where that is not allowed)')
    parser.add_argument('--dead-network', action='store_true', help='hosts have another network, drop0, on which nothing arrives')
    parser.add_argument('--one-core', action='store_true', help='in a cgroup with the time of one core (skipped where that is not allowed)')
    parser.add_argument('--own-pids', choices=['same', 'other'],
                        help='each rank in a PID namespace: all are process 1, or ranks from 1 on have a number that rank 0 has nobody for (skipped where that is not allowed)')
    parser.add_argument('--raw', action='store_true', help='run the command itself, without mpiexec')
    parser.add_argument('command', nargs='+')
    return parser.parse_args()


SKIPPED = 77  # what Meson takes for it
# A /dev/shm for this job alone. MPICH dies where its own share of it does not fit.
SMALL_SHM = ['unshare', '--mount', 'sh', '-c',
             'mount -t tmpfs -o size=256m tmpfs /dev/shm && exec "$@"', 'sh']
OWN_PIDS = ['unshare', '--pid', '--fork', '--kill-child', '--mount-proc']
# A shell that becomes rank 0, and for others starts it as a later process.
OTHER_PIDS = ['sh', '-c', '[ "${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-0}}" -eq 0 ] && exec "$@"; for i in $(seq 40); do /bin/true; done; "$@"; exit $?', 'sh']


def command_line(args, several, cgroup):
    if args.raw:
        return args.command
    start = several.mpiexec(args.mpiexec, args.n) if several else hosts.mpiexec(args.mpiexec)
    line = (SMALL_SHM if args.small_shm else []) + start
    if cgroup:
        line = ['sh', '-c', f'echo $$ > {cgroup} && exec "$@"', 'sh'] + line
    separate = args.env_on or args.no_preload_on
    for rank in range(args.n if separate else 1):
        if rank > 0:
            line.append(':')
        line += ['-n', str(1 if separate else args.n)]
        settings = [e.partition(':')[2] for e in args.env_on if int(e.partition(':')[0]) == rank]
        # Set for the ranks, not for mpiexec.
        if args.preload and rank not in args.no_preload_on:
            settings.append('LD_PRELOAD=' + args.preload)
        line += ['env'] + settings + (OWN_PIDS if args.own_pids else []) + (OTHER_PIDS if args.own_pids == 'other' else []) + args.command
    return line


def environment(args):
    env = {k: v for k, v in os.environ.items() if not k.startswith('HEDDLE_') and k != 'LD_PRELOAD'}
    # A sanitizer in the program would rather be loaded first; that matters only for what it cannot see in the preload
    # library. The host MPI is not free of leaks and not instrumented.
    env['ASAN_OPTIONS'] = env.get('ASAN_OPTIONS', '') + ':verify_asan_link_order=0:detect_leaks=0'
    env['TSAN_OPTIONS'] = env.get('TSAN_OPTIONS', '') + ':ignore_noninstrumented_modules=1'
    if args.raw and args.preload:
        env['LD_PRELOAD'] = args.preload
    env.update(e.split('=', 1) for e in args.env)
    return env


@contextlib.contextmanager
def cgroup_of_one_core():
    """A cgroup whose processes get one core's time in all; gives the file that takes them in."""
    first = '/sys/fs/cgroup/cpu' if os.path.isdir('/sys/fs/cgroup/cpu') else '/sys/fs/cgroup'
    folder = f'{first}/heddle-test-{os.getpid()}'
    os.mkdir(folder)
    try:
        if os.path.exists(f'{folder}/cpu.max'):
            pathlib.Path(folder, 'cpu.max').write_text('100000 100000')
        else:
            pathlib.Path(folder, 'cpu.cfs_quota_us').write_text('100000')
        procs = f'{folder}/cgroup.procs'
        trial = subprocess.run(['sh', '-c', f'echo $$ > {procs}'], stderr=subprocess.PIPE, text=True)
        if trial.returncode != 0:
            raise OSError(trial.stderr.strip())
        yield procs
    finally:
        for _ in range(100):  # the kernel takes a moment to forget the last process
            try:
                os.rmdir(folder)
                break
            except OSError:
                time.sleep(0.05)


def shared_names():
    return {name for name in os.listdir('/dev/shm') if 'heddle' in name}


def run(args, several, cgroup):
    """Returns the exit status (None when it had to be killed) and the output."""
    job = subprocess.Popen(command_line(args, several, cgroup), env=environment(args), stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    os.set_blocking(job.stdout.fileno(), False)
    deadline = time.monotonic() + args.timeout
    output = b''
    killed = not args.kill_on
    closed = False
    while time.monotonic() < deadline:
        piece = job.stdout.read()
        closed = piece == b''
        output += piece or b''
        if not killed:
            found = re.search(args.kill_on.encode() + rb'(\d+)', output)
            if found:
                os.kill(int(found.group(1)), signal.SIGKILL)
                killed = True
        if closed and job.poll() is not None:
            return job.returncode, output.decode(errors='replace')
        time.sleep(0.01)
    os.killpg(job.pid, signal.SIGTERM)  # mpiexec takes its ranks along
    time.sleep(1)
    try:
        os.killpg(job.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    job.wait()
    return None, output.decode(errors='replace') + (job.stdout.read() or b'').decode(errors='replace')


def problems(args, status, output):
    if status is None:
        yield f'still running after {args.timeout:g} s'
    elif args.fails and status == 0:
        yield 'ended well, but should not have'
    elif not args.fails and status != 0:
        yield f'ended with status {status}'
    for wanted in args.says:
        if not re.search(wanted, output):
            yield f'did not say: {wanted}'
    for wanted in args.says_once:
        lines = sum(1 for line in output.splitlines() if re.search(wanted, line))
        if lines != 1:
            yield f'said {lines} times instead of once: {wanted}'
    if args.silent and re.search(r'^heddle', output, re.M):
        yield 'heddle was not silent'


def main():
    args = parse()
    if args.preload:
        args.preload = os.path.abspath(args.preload)
    for wanted, wrapper in (args.small_shm, SMALL_SHM), (args.own_pids, OWN_PIDS):
        trial = subprocess.run(wrapper + ['true'], stderr=subprocess.PIPE, text=True) if wanted else None
        if trial and trial.returncode != 0:
            print(f'skipped: no {" ".join(wrapper[:3])} (needs root):', trial.stderr.strip())
            return SKIPPED
    before = shared_names()
    with contextlib.ExitStack() as stack:
        try:
            several = stack.enter_context(hosts.Hosts(args.hosts)) if args.hosts else None
            if args.dead_network:
                several.add_dead_network()
        except OSError as problem:
            print('skipped: no network namespaces for several hosts (needs root and iproute2):', problem)
            return SKIPPED
        try:
            cgroup = stack.enter_context(cgroup_of_one_core()) if args.one_core else None
        except OSError as problem:
            print('skipped: no cgroup with a quota (needs root and a cpu controller):', problem)
            return SKIPPED
        status, output = run(args, several, cgroup)
    sys.stdout.write(output)
    found = list(problems(args, status, output))
    if args.clean_shm:
        for _ in range(50):  # other jobs on this machine have theirs for a moment
            left = shared_names() - before
            if not left:
                break
            time.sleep(0.1)
        if left:
            found.append('left in /dev/shm: ' + ' '.join(sorted(left)))
    for problem in found:
        print('FAILED:', problem)
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
