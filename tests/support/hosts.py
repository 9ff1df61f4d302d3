#!/usr/bin/env python3
"""Several hosts on one machine, for tests: each a network namespace on one bridge, with a host name and a /dev/shm of its own.

As a program it stands in for ssh: Hydra's mpiexec calls it to start its proxies (-launcher ssh -launcher-exec hosts.py).
"""
import os
import subprocess
import sys

PREFIX = 'TEST_HOSTS'  # the environment variable that tells the stand-in for ssh which hosts are meant
# Arguments: host name, command line.
INSIDE = 'hostname "$1" && mount -t tmpfs -o size=1g tmpfs /dev/shm && eval "$2"'


def run(*command):
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise OSError(f'{" ".join(command)}: {done.stderr.strip()}')


class Hosts:
    """`with Hosts(2) as hosts`: OSError where namespaces are not allowed or iproute2 is missing."""

    def __init__(self, count):
        self.prefix = f'test{os.getpid()}h'
        self.count = count
        self.keepers = {}

    def name(self, number):
        """The namespace of host 1, 2, ...; 0 is the bridge between them."""
        return self.prefix + str(number)

    def __enter__(self):
        try:
            self._make()
        except OSError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for keeper in self.keepers.values():
            keeper.kill()
            keeper.wait()
        for number in range(self.count + 1):
            subprocess.run(['ip', 'netns', 'del', self.name(number)], stderr=subprocess.DEVNULL, check=False)

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

    def limit(self, number, rate):
        """What that host sends: limit(2, '40mbit')."""
        run('tc', '-n', self.name(number), 'qdisc', 'add', 'dev', 'net0', 'root', 'tbf', 'rate', rate, 'burst', '64kb', 'latency', '50ms')

    def mpiexec(self, program, ranks):
        """The start of a command line: mpiexec (Hydra's, or Open MPI's by its name), running on the first host, over all of them."""
        inside = ['ip', 'netns', 'exec', self.name(1), 'env', f'{PREFIX}={self.prefix}']
        numbers = range(1, self.count + 1)
        if is_open_mpi(program):
            addresses = ','.join(f'{self.address(n)}:{-(-ranks // self.count)}' for n in numbers)
            return inside + mpiexec(program) + ['--host', addresses, '--map-by', 'node', '--mca', 'plm_rsh_agent', os.path.abspath(__file__),
                                                '--mca', 'oob_tcp_if_include', 'net0', '--mca', 'btl_tcp_if_include', 'net0']
        addresses = ','.join(self.address(n) for n in numbers)
        return inside + [program, '-launcher', 'ssh', '-launcher-exec', os.path.abspath(__file__), '-iface', 'net0', '-hosts', addresses]


def is_open_mpi(program):
    return 'openmpi' in os.path.basename(program)


def mpiexec(program):
    """The start of a command line on this machine alone. Open MPI is told to share cores, and to give them up where it waits."""
    if not is_open_mpi(program):
        return [program]
    return [program, '--allow-run-as-root', '--oversubscribe', '--bind-to', 'none', '--mca', 'mpi_yield_when_idle', '1']


def stand_in_for_ssh(arguments):
    while arguments and arguments[0].startswith('-'):
        arguments = arguments[1:]
    address, command = arguments[0], ' '.join(arguments[1:])
    host = os.environ[PREFIX] + address.rpartition('.')[2]
    os.execvp('ip', ['ip', 'netns', 'exec', host, 'unshare', '--uts', '--mount', '--ipc', 'sh', '-c', INSIDE, 'sh', host, command])


if __name__ == '__main__':
    stand_in_for_ssh(sys.argv[1:])
