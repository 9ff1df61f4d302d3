#!/usr/bin/env python3
"""Several hosts on one machine, for tests: each a network namespace on one bridge, with a host name and a /dev/shm of its own.

As a program it stands in for ssh: Hydra's mpiexec calls it to start its proxies (-launcher ssh -launcher-exec hosts.py).
"""
import os
import re
import signal
import subprocess
import sys
import threading

NAME = 'test'  # of a namespace, before the number of the process that made it
PREFIX = 'TEST_HOSTS'  # the environment variable that tells the stand-in for ssh which hosts are meant
SHARES = 'TEST_HOSTS_CORES'  # where hosts have cores of their own: those of each
# Arguments: host name, command line.
INSIDE = 'hostname "$1" && mount -t tmpfs -o size=1g tmpfs /dev/shm && eval "$2"'


def run(*command):
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise OSError(f'{" ".join(command)}: {done.stderr.strip()}')


def sweep():
    """Removes the namespaces of processes that are gone: killed ones cannot."""
    try:
        names = os.listdir('/run/netns')
    except OSError:
        return
    for name in names:
        found = re.fullmatch(rf'{NAME}(\d+)h\d+', name)
        if found and not os.path.exists(f'/proc/{found[1]}'):
            subprocess.run(['ip', 'netns', 'del', name], stderr=subprocess.DEVNULL, check=False)


class Hosts:
    """`with Hosts(2) as hosts`: OSError where namespaces are not allowed or iproute2 is missing."""

    def __init__(self, count):
        self.prefix = f'{NAME}{os.getpid()}h'
        self.count = count
        self.keepers = {}
        self.earlier = None

    def name(self, number):
        """The namespace of host 1, 2, ...; 0 is the bridge between them."""
        return self.prefix + str(number)

    def __enter__(self):
        sweep()
        # As an exception it comes by __exit__; by itself it would leave the namespaces behind. Handlers are the main thread's.
        if threading.current_thread() is threading.main_thread():
            self.earlier = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for keeper in self.keepers.values():
            keeper.kill()
            keeper.wait()
        for number in range(self.count + 1):
            subprocess.run(['ip', 'netns', 'del', self.name(number)], stderr=subprocess.DEVNULL, check=False)
        if self.earlier is not None:
            signal.signal(signal.SIGTERM, self.earlier)
            self.earlier = None

    def _make(self):
        switch = self.name(0)
        run('unshare', '--uts', '--mount', '--ipc', 'true')
        run('ip', 'netns', 'add', switch)
        run('ip', '-n', switch, 'link', 'add', 'br0', 'type', 'bridge')
        run('ip', '-n', switch, 'link', 'set', 'br0', 'up')
        for number in range(1, self.count + 1):
            host = self.name(number)
            run('ip', 'netns', 'add', host)
            run('ip', 'link', 'add', 'net0', 'netns', host, 'type', 'veth', 'peer', 'name', f'port{number}', 'netns', switch)
            run('ip', '-n', switch, 'link', 'set', f'port{number}', 'master', 'br0', 'up')
            run('ip', '-n', host, 'addr', 'add', self.address(number) + '/24', 'dev', 'net0')
            run('ip', '-n', host, 'link', 'set', 'net0', 'up')
            run('ip', '-n', host, 'link', 'set', 'lo', 'up')

    @staticmethod
    def address(number):
        return f'10.9.0.{number}'

    def _keeper(self, number):
        """A process that keeps the host's other namespaces (name, mounts) while processes come and go."""
        if number not in self.keepers:
            host = self.name(number)
            keeper = subprocess.Popen(['ip', 'netns', 'exec', host, 'unshare', '--uts', '--mount', '--ipc', 'sh', '-c', INSIDE, 'sh',
                                       host, 'echo ready; exec sleep 1000000'], stdout=subprocess.PIPE)
            if keeper.stdout.readline() != b'ready\n':
                keeper.kill()
                raise OSError(f'{host} does not come up')
            self.keepers[number] = keeper
        return self.keepers[number].pid

    def start(self, number, command, **options):
        """A process on host 1, 2, ...; `options` are Popen's."""
        target = str(self._keeper(number))
        return subprocess.Popen(['nsenter', '--target', target, '--net', '--uts', '--mount', '--ipc', '--'] + command, **options)

    def shared_names(self, number):
        """What is in the host's /dev/shm."""
        return os.listdir(f'/proc/{self._keeper(number)}/root/dev/shm')

    def on(self, number, *command):
        """`ip` for that host: on(2, 'link', 'set', 'net0', 'down')."""
        run('ip', '-n', self.name(number), *command)

    def add_dead_network(self):
        """drop0, a network that all hosts seem to share and that drops everything without a word, as a firewall does."""
        for number in range(1, self.count + 1):
            self.on(number, 'link', 'add', 'drop0', 'type', 'veth', 'peer', 'name', 'drop1')
            self.on(number, 'addr', 'add', f'10.8.0.{number}/24', 'dev', 'drop0')
            for end in ('drop0', 'drop1'):
                self.on(number, 'link', 'set', end, 'up')
            for other in range(1, self.count + 1):
                if other != number:
                    self.on(number, 'neigh', 'add', f'10.8.0.{other}', 'lladdr', '02:00:00:00:00:99', 'dev', 'drop0')

    def limit(self, number, rate):
        """What that host sends: limit(2, '40mbit')."""
        run('tc', '-n', self.name(number), 'qdisc', 'add', 'dev', 'net0', 'root', 'tbf', 'rate', rate, 'burst', '64kb', 'latency', '50ms')

    def mpiexec(self, program, ranks, bind=False):
        """The start of a command line: mpiexec (Hydra's, or Open MPI's by its name), running on the first host, over all of them. `bind`: where
        there are cores for all ranks, hosts have some of their own."""
        inside = ['ip', 'netns', 'exec', self.name(1), 'env', f'{PREFIX}={self.prefix}']
        numbers = range(1, self.count + 1)
        each = -(-ranks // self.count)
        # Hosts have equal shares, which the ranks need not fill.
        bind = bind and not crowded(self.count * each)
        if bind:
            # A share of the cores for each host: launchers would bind the first ranks of all of them to the machine's first core.
            shares = shares_of(sorted(os.sched_getaffinity(0)), each)
            inside += [f'{SHARES}={" ".join(shares)}', 'taskset', '-c', shares[0]]
        if is_open_mpi(program):
            addresses = ','.join(f'{self.address(n)}:{each}' for n in numbers)
            return inside + mpiexec(program, crowd=not bind) + ['--host', addresses, '--map-by', 'node', '--mca', 'plm_rsh_agent', os.path.abspath(__file__),
                                                '--mca', 'oob_tcp_if_include', 'net0', '--mca', 'btl_tcp_if_include', 'net0']
        addresses = ','.join(self.address(n) for n in numbers)
        return inside + [program, '-launcher', 'ssh', '-launcher-exec', os.path.abspath(__file__), '-iface', 'net0', '-hosts', addresses]


def is_open_mpi(program):
    return 'openmpi' in os.path.basename(program)


def crowded(ranks):
    """More ranks than cores that they may use."""
    return ranks > len(os.sched_getaffinity(0))


def shares_of(cores, each):
    """`each` of the cores for a host, one host after the other, as taskset takes them."""
    return [','.join(map(str, cores[at:at + each])) for at in range(0, len(cores), each)]


def mpiexec(program, crowd=True):
    """The start of a command line on this machine alone. With `crowd`, as where several tests run at once, Open MPI is told to share cores,
    and to give them up where it waits: elsewhere that would only slow it down."""
    if not is_open_mpi(program):
        return [program]
    yields = ['--mca', 'mpi_yield_when_idle', '1'] if crowd else []
    return [program, '--allow-run-as-root', '--oversubscribe', '--bind-to', 'none'] + yields


def stand_in_for_ssh(arguments):
    while arguments and arguments[0].startswith('-'):
        arguments = arguments[1:]
    if len(arguments) < 2:
        sys.exit('hosts.py: in place of ssh, with the address of a host and a command: hosts.py [OPTIONS] 10.9.0.1 COMMAND...')
    address, command = arguments[0], ' '.join(arguments[1:])
    number = address.rpartition('.')[2]
    host = os.environ[PREFIX] + number
    if SHARES in os.environ:
        # mpiexec, which calls this, has the first host's alone.
        os.sched_setaffinity(0, map(int, os.environ[SHARES].split()[int(number) - 1].split(',')))
    os.execvp('ip', ['ip', 'netns', 'exec', host, 'unshare', '--uts', '--mount', '--ipc', 'sh', '-c', INSIDE, 'sh', host, command])


if __name__ == '__main__':
    stand_in_for_ssh(sys.argv[1:])
