#!/usr/bin/env python3
"""Compares heddle's preload library with an MPI, or gloo, over several hosts of this machine: network namespaces whose links are shaped.

    osu_style_bench/over_hosts.py --preload build/check/src/interpose/libheddle_preload.so
    osu_style_bench/over_hosts.py --preload ... --collective bcast_alone --sizes 1024:1048576 --turns 3 --json bcast.json

Both run peer_loop.c, by turns: the other MPI as it is (Open MPI told to yield where ranks share cores; elsewhere each host has cores of its own), and one with heddle. With gloo
what the loop calls of MPI is gloo's, over TCP (gloo_calls.cpp); --peer-env GLOO_ALGORITHM=bcube or halving_doubling
takes another of its allreduces than it does by itself. --tuned gives the other MPI further settings, which take their turns as well, and heddle is also compared with
the best of all at each size: its own choices may be poor, and those who know it would not leave it at them. Prints medians over the turns, their ratio and its 95% interval (bootstrap over turns), or
with fewer than six turns, from which no such interval can be had, the range of the turns' ratios.
Needs root, iproute2, both MPIs' compilers, and for gloo its headers (Debian: libgloo-dev).
"""
import argparse
import hashlib
import json
import math
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / 'tests' / 'support'), str(HERE.parent / 'tools')]
import hosts  # noqa: E402
import show_results  # noqa: E402

LEAST_BYTES = 4  # a float
STORE = 'store'  # where gloo's ranks find each other, empty at each start


def size(text):
    found = re.fullmatch(r'(\d+)([KMG]?)', text.upper())
    return int(found[1]) << 10 * ' KMG'.index(found[2] or ' ') if found else 0


def size_range(text):
    least, _, most = text.partition(':')
    sizes = size(least), size(most or least)
    if any(s < LEAST_BYTES or s & (s - 1) for s in sizes) or sizes[0] > sizes[1]:
        raise argparse.ArgumentTypeError(f"'{text}' is not LEAST:MOST, powers of two from {LEAST_BYTES} on, with K, M or G if you like")
    return sizes


def whole(text):
    if not re.fullmatch(r'[1-9]\d*', text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of 1 or more")
    return int(text)


def seconds(text):
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds")
    return value


def setting(text):
    if not re.match(r'[A-Za-z_]\w*=', text):
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE")
    return text


def settings_of(text):
    if not text.split():
        raise argparse.ArgumentTypeError(f"'{text}' holds no NAME=VALUE")
    return [setting(each) for each in text.split()]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--preload', required=True, type=pathlib.Path, help='libheddle_preload.so')
    parser.add_argument('--peer', choices=['openmpi', 'mpich', 'gloo'], default='openmpi', help='what heddle is compared with (default openmpi)')
    parser.add_argument('--under', choices=['openmpi', 'mpich'], default='mpich', help='the MPI that heddle is preloaded into (default mpich)')
    parser.add_argument('--collective', choices=['allreduce', 'reduce', 'bcast', 'bcast_alone', 'bcast_fixed', 'allgather'], default='allreduce',
                        help='allreduce, reduce, bcast or allgather: calls in a row; bcast_alone: each by itself, after all have met; bcast_fixed: in a row, all from rank 0 (default allreduce)')
    parser.add_argument('--hosts', type=whole, default=4, help='network namespaces to make (default 4)')
    parser.add_argument('--ranks-per-host', type=whole, default=1, help='(default 1)')
    parser.add_argument('--rate', default='1gbit', help="of each link, both ways, in tc's words; none: not shaped (default 1gbit)")
    parser.add_argument('--burst', default='256k', help='what a link lets through unshaped, in one piece (default 256k)')
    parser.add_argument('--congestion', metavar='NAME', help="TCP's congestion control on all hosts, as in /proc/sys/net/ipv4/tcp_allowed_congestion_control (default: this machine's)")
    parser.add_argument('--sizes', type=size_range, default=(4, 1 << 26), metavar='LEAST:MOST', help='in bytes (allgather: of what each rank gives), powers of two; K, M and G if you like (default 4:64M)')
    parser.add_argument('--turns', type=whole, default=7, help='runs of each side, by turns; from six on there are 95%% intervals (default 7)')
    parser.add_argument('--timeout', type=seconds, default=600, help='for one run (default 600)', metavar='SECONDS')
    parser.add_argument('--env', action='append', type=setting, default=[], metavar='NAME=VALUE', help="a variable for heddle's runs; may be given several times")
    parser.add_argument('--peer-env', action='append', type=setting, default=[], metavar='NAME=VALUE', help="a variable for the other's runs; may be given several times")
    parser.add_argument('--tuned', action='append', type=settings_of, default=[], metavar="'NAME=VALUE ...'",
                        help="variables, with blanks between, for further runs of the other in each turn, beside those as it comes (its other algorithms, say); may be given several times")
    parser.add_argument('--json', type=pathlib.Path, metavar='FILE', help='write every sample and the settings to this file; tools/show_results.py shows it')
    args = parser.parse_args()
    if not args.preload.is_file():
        parser.error(f"--preload '{args.preload}': there is no such file; it is in build/.../src/interpose")
    if args.json and not writable(args.json):
        parser.error(f"--json '{args.json}' cannot be written")
    return args


def writable(path):
    """Found out before the turns; what is there stays."""
    return os.access(path, os.W_OK) and path.is_file() if path.exists() else os.access(path.parent, os.W_OK | os.X_OK)


def shape(several, rate, burst):
    """Both ends of each link, since a queue shapes what leaves it."""
    for number in range(1, several.count + 1):
        for place, device in ((number, 'net0'), (0, f'port{number}')):
            hosts.run('tc', '-n', several.name(place), 'qdisc', 'add', 'dev', device, 'root', 'tbf', 'rate', rate, 'burst', burst, 'latency', '100ms')


def congestion(several, name):
    """Sets it on all hosts, if a name is given; the one that they have."""
    key = 'net.ipv4.tcp_congestion_control'
    for number in range(1, several.count + 1) if name else ():
        hosts.run('ip', 'netns', 'exec', several.name(number), 'sysctl', '-qw', f'{key}={name}')
    return first_line('ip', 'netns', 'exec', several.name(1), 'sysctl', '-n', key)


def build_loop(folder, peer):
    program, loop = folder / f'loop.{peer}', str(HERE / 'peer_loop.c')
    if peer == 'gloo':
        hosts.run('mpicc.mpich', '-O2', '-c', loop, '-o', str(folder / 'loop.o'))
        hosts.run('mpicxx.mpich', '-std=c++17', '-O2', '-c', str(HERE / 'gloo_calls.cpp'), '-o', str(folder / 'gloo.o'))
        hosts.run('c++', str(folder / 'loop.o'), str(folder / 'gloo.o'), '-lgloo', '-pthread', '-o', str(program))
    else:
        hosts.run(f'mpicc.{peer}', '-O2', loop, '-o', str(program))
    return str(program)


def command(several, mpi, ranks, loop, settings):
    return several.mpiexec(f'mpiexec.{mpi}', ranks, bind=True) + ['-n', str(ranks), 'env'] + settings + [loop]


def peer_command(several, folder, args, ranks, loop, tuned=()):
    settings = [*args.peer_env, *tuned]
    if args.peer == 'gloo':
        settings += ['GLOO_INTERFACE=net0', f'GLOO_STORE={folder / STORE}']
    return command(several, 'mpich' if args.peer == 'gloo' else args.peer, ranks, loop, settings)


def first_line(*line):
    """Of what a program says of itself; empty where it says nothing."""
    try:
        return subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout.strip().partition('\n')[0]
    except OSError:
        return ''


def version_of(peer):
    """As its launcher tells it; gloo has none but its package's."""
    if peer == 'gloo':
        return first_line('dpkg-query', '-W', '-f', '${Package} ${Version}', 'libgloo-dev')
    said = subprocess.run([f'mpiexec.{peer}', '--version'], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout
    found = re.search(r'(?:Version:|\(OpenRTE\))\s*(\S+)', said)
    return f'{peer} {found[1]}' if found else peer


def cpu():
    found = re.search(r'^model name\s*: (.*)$', pathlib.Path('/proc/cpuinfo').read_text(), re.M)
    return found[1] if found else platform.machine()


def described(folder):
    """The sources that `folder` lies in; empty where they are no repository of their own, but part of somebody else's at most."""
    root = pathlib.Path(first_line('git', '-C', str(folder), 'rev-parse', '--show-toplevel') or '/')
    ours = (root / HERE.name / pathlib.Path(__file__).name).is_file()
    return first_line('git', '-C', str(root), 'describe', '--always', '--long', '--dirty') if ours else ''


def description(args, lines):
    """What tells which build was measured, when, and on what. Paths are this machine's own, and left out."""
    settings = {k: str(v) if isinstance(v, pathlib.Path) else v for k, v in vars(args).items() if k not in ('json', 'preload')}
    source = described(args.preload.resolve().parent) or described(HERE)
    preload = {'name': args.preload.name, 'sha256': hashlib.sha256(args.preload.read_bytes()).hexdigest()}
    return {'schema': 1, 'what': 'osu_style_bench/over_hosts.py, microseconds of one call', 'date': time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime()),
            'heddle_source': source, 'preload': preload, 'peer_version': version_of(args.peer), 'under_version': version_of(args.under),
            # With what binds and yields, and what it does not bind: the launchers' options as they were.
            'launchers': {side: [part for part in line if '/' not in part] for side, line in lines.items()},
            'settings': settings, 'cores': os.cpu_count(), 'cpu': cpu(), 'kernel': platform.release()}


def run_loop(line, args, folder):
    """{bytes: microseconds} of one run."""
    store = folder / STORE
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir()
    least, most = args.sizes
    line = line + [args.collective, str(least), str(most)]
    env = {k: v for k, v in os.environ.items() if not k.startswith('HEDDLE_') and k != 'LD_PRELOAD'}
    done = subprocess.run(line, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=args.timeout, check=False)
    if done.returncode != 0:
        raise OSError(f'{" ".join(line)}: status {done.returncode}\n{done.stdout}{done.stderr}')
    sys.stderr.write(done.stderr)  # HEDDLE_LOG's, for one
    return {int(size): float(us) for size, us in (row.split() for row in done.stdout.splitlines() if row[:1].isdigit())}


def sides(several, folder, args):
    """{name: command line}."""
    ranks = args.hosts * args.ranks_per_host
    loop = build_loop(folder, args.peer)
    lines = {'peer': peer_command(several, folder, args, ranks, loop)}
    for tuned in args.tuned:
        lines[' '.join(tuned)] = peer_command(several, folder, args, ranks, loop, tuned)
    lines['heddle'] = command(several, args.under, ranks, build_loop(folder, args.under), [f'LD_PRELOAD={args.preload.resolve()}'] + args.env)
    return lines


def in_turn(names, turn):
    """Who is first, and who comes after whom, changes, so that what drifts favours nobody."""
    first = turn // 2 % len(names)
    order = names[first:] + names[:first]
    return order[::-1] if turn % 2 == 1 else order


def measure(several, folder, args):
    lines = sides(several, folder, args)
    samples = {side: [] for side in lines}
    head = {**description(args, lines), 'congestion_control': congestion(several, args.congestion)}
    for turn in range(args.turns):
        for side in in_turn(list(lines), turn):
            print(f'turn {turn + 1} of {args.turns}: {args.peer if side == "peer" else side}', file=sys.stderr, flush=True)
            samples[side].append(run_loop(lines[side], args, folder))
        if args.json:
            tuned = {' '.join(each): samples[' '.join(each)] for each in args.tuned}
            args.json.write_text(json.dumps({**head, 'peer': samples['peer'], **({'tuned': tuned} if tuned else {}), 'heddle': samples['heddle']}, indent=1) + '\n')
    show_results.print_turns(args.peer, samples)


def main():
    args = parse()
    try:
        with tempfile.TemporaryDirectory() as folder, hosts.Hosts(args.hosts) as several:
            if args.rate != 'none':
                shape(several, args.rate, args.burst)
            measure(several, pathlib.Path(folder), args)
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.exit(f'over_hosts.py: {error}')


if __name__ == '__main__':
    main()
