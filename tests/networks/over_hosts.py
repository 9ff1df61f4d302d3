#!/usr/bin/env python3
"""Jobs without MPI over several hosts of one machine (support/hosts.py), joined by a network: that they work, and how they fail.

    over_hosts.py PROGRAM MODULES NETWORK SCENARIO HOSTS RANKS-PER-HOST

Exit status 77: skipped, and why is said.
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / 'support'))
import hosts  # noqa: E402
import native_ranks  # noqa: E402

SKIPPED = 77
DEADLINE = 5  # seconds, of those jobs that must fail


class Job:
    """One job over all hosts, rank 0 on the first one, ranks in turn over the hosts."""

    def __init__(self, several, program, per_host, settings, on_rank=None):
        self.several = several
        self.size = several.count * per_host
        environments = native_ranks.environments(self.size, **{'MASTER_ADDR': several.address(1)} | settings)
        for rank, more in (on_rank or {}).items():
            environments[rank] |= more
        self.folder = pathlib.Path('/tmp') / several.prefix
        self.folder.mkdir(exist_ok=True)
        self.files = [self.folder / str(rank) for rank in range(self.size)]
        self.ranks = []
        for rank, environment in enumerate(environments):
            with open(self.files[rank], 'wb') as out:
                self.ranks.append(several.start(self.host_of(rank), program, env=environment, stdout=out, stderr=out))

    def host_of(self, rank):
        return rank % self.several.count + 1

    def output(self, rank):
        return self.files[rank].read_text(errors='replace')

    def wait_for(self, text, seconds):
        """Until every rank has said it; the match of each."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = [re.search(text, self.output(rank)) for rank in range(self.size)]
            if all(found):
                return found
            if any(rank.poll() for rank in self.ranks):
                break
            time.sleep(0.02)
        raise AssertionError(f'not said by all: {text}\n' + self.report())

    def finish(self, seconds):
        """Exit statuses; None for a rank that had to be killed."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(rank.poll() is None for rank in self.ranks):
            time.sleep(0.02)
        statuses = [rank.poll() for rank in self.ranks]
        self.kill()
        return statuses

    def kill(self):
        for rank in self.ranks:
            rank.kill()
            rank.wait()

    def report(self):
        return ''.join(f'--- rank {rank}, status {self.ranks[rank].poll()}\n{self.output(rank)}' for rank in range(self.size))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        for file in self.files:
            file.unlink()
        self.folder.rmdir()


def check(truth, problem, job):
    if not truth:
        raise AssertionError(problem + '\n' + job.report())


class Scenarios:
    def __init__(self, program, modules, network, several, per_host):
        self.program = os.path.abspath(program)
        self.network = network
        self.several = several
        self.per_host = per_host
        self.settings = {'HEDDLE_MODULES': os.path.abspath(modules), 'HEDDLE_TRANSPORTS': 'shm,' + network, 'HEDDLE_LOG': 'info'}

    def job(self, *arguments, on_rank=None, prefix=(), **settings):
        return Job(self.several, [*prefix, self.program, *arguments], self.per_host, self.settings | settings, on_rank)

    def works(self, *arguments, seconds=100, **settings):
        with self.job(*arguments, **settings) as job:
            statuses = job.finish(seconds)
            check(all(status == 0 for status in statuses), f'statuses {statuses}', job)
            self.check_clean(job)
            return [job.output(rank) for rank in range(job.size)]

    def add_decoys(self):
        """Every host has the same bridge, as that of containers, and a network on which nobody answers."""
        for number in range(1, self.several.count + 1):
            self.several.on(number, 'link', 'add', 'docker0', 'type', 'bridge')
            self.several.on(number, 'link', 'add', 'dead0', 'type', 'veth', 'peer', 'name', 'nobody')
            for name, address in [('docker0', '172.17.0.1/16'), ('dead0', f'10.8.0.{number}/24')]:
                self.several.on(number, 'addr', 'add', address, 'dev', name)
                self.several.on(number, 'link', 'set', name, 'up')
            self.several.on(number, 'link', 'set', 'nobody', 'up')

    def check_clean(self, job):
        for number in range(1, self.several.count + 1):
            left = self.several.shared_names(number)
            check(not left, f'left in /dev/shm of host {number}: {left}', job)

    def fails_in_time(self, job, statuses, but, peers):
        """All ranks but `but` end with an error in time, and name one of `peers`, or who is missing because of it."""
        for rank, status in enumerate(statuses):
            if rank == but:
                continue
            check(status == 3, f'rank {rank} ended with {status}', job)
            named = re.search(r'rank %d: \w+: (peer failed|timeout): .*rank \d+ (\(process|on )' % rank, job.output(rank))
            check(named, f'rank {rank} does not name a peer', job)
        said = ''.join(job.output(rank) for rank in range(job.size) if rank != but)
        check(any(re.search(r'rank %d (\(process \d+ )?on ' % peer, said) for peer in peers), f'nobody names one of {peers}', job)
        self.check_clean(job)

    # ---- What works

    def conform(self):
        outputs = self.works('conform')
        print(next(line for line in outputs[0].splitlines() if f'{self.network} (' in line))

    def overlap(self):
        self.works('overlap', HEDDLE_LOG='warn')

    def elsewhere(self):
        self.works('elsewhere', HEDDLE_TIMEOUT='20', HEDDLE_LOG='warn')

    def rounds(self):
        self.works('rounds', '15', HEDDLE_LOG='warn')

    def slow(self):
        """A collective takes several times HEDDLE_TIMEOUT, and moves all the while, on one rank of each host."""
        for number in range(1, self.several.count + 1):
            self.several.limit(number, '40mbit')
        # In pieces, and with all of it in one message.
        for settings in [{}, {'HEDDLE_ALGORITHM': 'allreduce:recursive_doubling'}]:
            said = ''.join(self.works('large', HEDDLE_TIMEOUT='2', HEDDLE_WARN_AFTER='2', HEDDLE_LOG='warn', **settings))
            if 'waiting for' in said:
                raise AssertionError(f'a rank that moves is missed\n{said}')

    def late(self):
        """Half a GiB is sent to a rank whose own receiver is late: it keeps a small part of that at most."""
        for rank, output in enumerate(self.works('late', HEDDLE_ALGORITHM='bcast:chain', HEDDLE_LOG='warn')):
            taken = int(re.search(r'took (\d+) MiB', output).group(1))
            print(f'rank {rank}: {taken} MiB')
            assert taken < 100, f'rank {rank} took {taken} MiB for messages of others'

    def mtu(self):
        self.several.on(2, 'link', 'set', 'net0', 'mtu', '700')
        self.works('conform')

    def contacts(self):
        """File descriptors grow with the peers talked to: at most four a peer, and none for the others."""
        size = self.several.count * self.per_host
        rounds = size.bit_length()
        for rank, output in enumerate(self.works('contacts', HEDDLE_ALGORITHM='recursive_doubling')):
            made, small, *more = map(int, re.search(r'descriptors (.*)', output).group(1).split())
            print(f'rank {rank}: {made} with a communicator, {small} after small collectives, then {more} with each peer more')
            assert small - made <= 4 * rounds, f'{small - made} descriptors for about {rounds} peers'
            assert more[-1] - made <= 4 * (size - 1), f'{more[-1] - made} descriptors for {size - 1} peers'

    # ---- What fails

    def killed(self):
        with self.job('loop', HEDDLE_TIMEOUT=str(DEADLINE)) as job:
            victim = 1
            pids = job.wait_for(r'pid (\d+)', 60)
            time.sleep(0.5)
            os.kill(int(pids[victim].group(1)), signal.SIGKILL)
            self.fails_in_time(job, job.finish(2 * DEADLINE + 5), victim, [victim])
            # UCX has no word for it that a rank ends because of another one.
            if self.network == 'tcp':
                for rank in set(range(job.size)) - {victim}:
                    named = re.search(r'rank %d: \w+: peer failed: rank %d (\(process |on )' % (rank, victim), job.output(rank))
                    check(named, f'rank {rank} takes another one than {victim} for the first', job)

    def interface_down(self):
        with self.job('loop', HEDDLE_TIMEOUT=str(DEADLINE)) as job:
            job.wait_for(r'pid (\d+)', 60)
            time.sleep(0.5)
            self.several.on(2, 'link', 'set', 'net0', 'down')
            self.fails_in_time(job, job.finish(2 * DEADLINE + 5), None, range(job.size))

    def packets_lost(self):
        """Between the last two hosts, as by a firewall that drops: what one sends to the other goes to nobody."""
        last = self.several.count
        self.several.on(last, 'neigh', 'add', self.several.address(last - 1), 'lladdr', '02:00:00:00:00:99', 'dev', 'net0')
        with self.job('loop', HEDDLE_TIMEOUT=str(DEADLINE)) as job:
            self.fails_in_time(job, job.finish(3 * DEADLINE + 10), None, range(job.size))

    def refused(self, says, on_rank=None, prefix=(), **settings):
        with self.job('conform', on_rank=on_rank, prefix=prefix, **settings) as job:
            statuses = job.finish(60)
            for rank, status in enumerate(statuses):
                check(status == 3, f'rank {rank} ended with {status}', job)
                lines = [line for line in job.output(rank).splitlines() if re.search(says, line)]
                check(len(lines) == 1, f'rank {rank} says {len(lines)} times instead of once: {says}', job)
            self.check_clean(job)

    def not_built(self):
        self.refused(r'create: unsupported: .*is not in / \(HEDDLE_MODULES\)', HEDDLE_MODULES='/')


class UcxScenarios(Scenarios):
    def no_device(self):
        self.refused(r'unsupported.*rank 0.*no network device \(UCX_NET_DEVICES=none0\)', UCX_NET_DEVICES='none0')
        self.refused(r'unsupported.*rank 1.*no network device \(UCX_NET_DEVICES=none0\)', on_rank={1: {'UCX_NET_DEVICES': 'none0'}})
        self.refused(r'unsupported.*rank 0.*no network device \(UCX_TLS=nonsense\)', UCX_TLS='nonsense')
        self.refused(r'unsupported.*rank 0.*no network device \(UCX_TLS=self\)', UCX_TLS='self')
        # heddle's own settings win over those that an MPI may share.
        self.refused(r'unsupported.*rank 0.*no network device \(HEDDLE_UCX_TLS=self\)', UCX_TLS='tcp', HEDDLE_UCX_TLS='self')

    def instead(self):
        """Of a network that looks open and reaches nobody: the other one, although it is not the first in the list. UCX is told where it
        is, since it takes any interface that is up, the dead one too."""
        self.add_decoys()
        said = ''.join(self.works('conform', HEDDLE_TRANSPORTS='shm,tcp,ucx', HEDDLE_TCP_INTERFACES='dead0', HEDDLE_UCX_NET_DEVICES='net0'))
        for part in ['ucx is used between nodes, not tcp: .*10[.]8[.]0', 'transports: ucx']:
            if not re.search(part, said):
                raise AssertionError(f'not said: {part}\n{said}')

    def instead_between_two(self):
        """One network lets nothing through between two hosts, of which rank 0's is none. It is through with it at once, and waits for their
        word as long as HEDDLE_TIMEOUT says: until then they have given it up."""
        switch = self.several.name(0)
        hosts.run('ip', '-n', switch, 'link', 'add', 'br1', 'type', 'bridge')
        hosts.run('ip', '-n', switch, 'link', 'set', 'br1', 'up')
        for number in range(1, self.several.count + 1):
            hosts.run('ip', 'link', 'add', 'net1', 'netns', self.several.name(number), 'type', 'veth', 'peer', 'name', f'more{number}', 'netns', switch)
            hosts.run('ip', '-n', switch, 'link', 'set', f'more{number}', 'master', 'br1', 'up')
            self.several.on(number, 'addr', 'add', f'10.7.0.{number}/24', 'dev', 'net1')
            self.several.on(number, 'link', 'set', 'net1', 'up')
        for number, other in [(2, 4), (4, 2)]:
            self.several.on(number, 'neigh', 'add', self.several.address(other), 'lladdr', '02:00:00:00:00:99', 'dev', 'net0')
        said = ''.join(self.works('rounds', '1', HEDDLE_TRANSPORTS='shm,tcp,ucx', HEDDLE_TCP_INTERFACES='net0', HEDDLE_UCX_NET_DEVICES='net1',
                                  HEDDLE_TIMEOUT=str(DEADLINE)))
        if not re.search('ucx is used between nodes, not tcp: .*10[.]9[.]0', said):
            raise AssertionError(f'not said\n{said}')

    def few_descriptors(self):
        self.refused(r'out of memory.*file descriptors are open .ulimit -n.', prefix=('sh', '-c', 'ulimit -n 18 && exec "$@"', 'sh'))

    def few_descriptors_for_all(self):
        """Room for a few connections is not enough: UCX aborts when it cannot accept one."""
        self.refused(r'out of memory.*connections to 11 ranks may take 15 file descriptors over TCP, and .* are open .ulimit -n.',
                     prefix=('sh', '-c', 'ulimit -n 36 && exec "$@"', 'sh'))


class TcpScenarios(Scenarios):
    def decoys(self):
        self.add_decoys()
        self.works('conform')
        self.works('conform', HEDDLE_TCP_INTERFACES='net0')
        said = ''.join(self.works('conform', HEDDLE_TCP_PORTS='20000-20009', HEDDLE_LOG='info'))
        if not re.search(r'TCP at [0-9.]+:2000[0-9]\b', said): raise AssertionError(f'no port of the range:\n{said}')
        with self.job('loop', HEDDLE_TCP_INTERFACES='dead0,docker0', HEDDLE_TIMEOUT=str(DEADLINE)) as job:
            self.fails_in_time(job, job.finish(3 * DEADLINE + 10), None, range(job.size))

    def on_all(self, *command):
        for number in range(1, self.several.count + 1):
            self.several.on(number, *(part.format(number) for part in command))

    def dead_networks(self):
        """Two networks that all hosts seem to share and on which nobody answers come before the good one."""
        self.on_all('addr', 'add', 'fd09::{}/64', 'dev', 'net0', 'nodad')
        self.on_all('addr', 'flush', 'dev', 'net0', 'scope', 'global', 'to', '10.9.0.0/24')
        for net in ['dead1', 'dead2']:
            self.on_all('link', 'add', net, 'type', 'veth', 'peer', 'name', net + 'b')
            self.on_all('addr', 'add', f'10.{net[-1]}.0.{{}}/24', 'dev', net)
            self.on_all('link', 'set', net, 'up')
            self.on_all('link', 'set', net + 'b', 'up')
        self.works('rounds', '2', MASTER_ADDR='fd09::1', HEDDLE_TIMEOUT=str(DEADLINE))
        # Where no network is good all are named.
        with self.job('rounds', '1', MASTER_ADDR='fd09::1', HEDDLE_TIMEOUT='6', HEDDLE_TCP_INTERFACES='dead1,dead2') as job:
            statuses = job.finish(30)
            for rank, status in enumerate(statuses):
                check(status == 3, f'rank {rank} ended with {status}', job)
            said = ''.join(job.output(rank) for rank in range(job.size))
            check(re.search(r'no connection: .*10[.]1[.]0[.]\d:\d+: .*10[.]2[.]0[.]\d:\d+: ', said), 'addresses are not named', job)

    def one_way(self):
        """Host 1 has no way to the address that rank 1 offers, and rank 1 has one to host 1's: the connection is made, whoever wants it first."""
        self.several.on(2, 'link', 'add', 'far0', 'type', 'veth', 'peer', 'name', 'nobody')
        self.several.on(2, 'addr', 'add', '10.77.0.2/24', 'dev', 'far0')
        self.several.on(2, 'link', 'set', 'far0', 'up')
        self.several.on(2, 'link', 'set', 'nobody', 'up')
        self.works('rounds', '5', on_rank={1: {'HEDDLE_TCP_INTERFACES': 'far0'}}, HEDDLE_LOG='warn')

    def master_of_two_addresses(self):
        """The name in MASTER_ADDR has two addresses, the first of which (it is the nearer) answers nothing."""
        names = self.several.start(2, ['sh', '-c', 'echo "10.9.0.3 master\n10.9.0.1 master" > /tmp/"$1" && mount --bind /tmp/"$1" /etc/hosts && rm /tmp/"$1"',
                                       'sh', self.several.prefix + 'names'])
        assert names.wait() == 0
        self.several.on(2, 'neigh', 'add', '10.9.0.3', 'lladdr', '02:00:00:00:00:99', 'dev', 'net0')
        self.works('rounds', '2', on_rank={1: {'MASTER_ADDR': 'master'}}, HEDDLE_TIMEOUT=str(2 * DEADLINE), HEDDLE_LOG='warn')
        with self.job('rounds', '1', on_rank={0: {'MASTER_PORT': '1'}, 1: {'MASTER_ADDR': 'master'}}, HEDDLE_TIMEOUT='2') as job:
            job.finish(30)
            check(re.search(r'10[.]9[.]0[.]1: .*refused', job.output(1)) and re.search(r'10[.]9[.]0[.]3: no answer', job.output(1)),
                  'addresses are not named', job)

    def unanswered(self):
        """Neither host answers the other's, and nobody has set a deadline: the system would go on trying for two minutes."""
        self.several.add_dead_network()
        with self.job('rounds', '1', HEDDLE_TCP_INTERFACES='drop0') as job:
            statuses = job.finish(100)
            for rank, status in enumerate(statuses):
                check(status == 3, f'rank {rank} ended with {status}', job)
                said = re.search(r'create: .*', job.output(rank)).group()
                check(re.search(r'no connection: 10[.]8[.]0[.][12]:[0-9]+: no answer', said) and ' within 30' in said, 'the address is not named', job)

    def no_way_between_two(self):
        """All ranks are told which address the one cannot reach, not what others have heard of that."""
        self.several.on(3, 'route', 'add', 'unreachable', self.several.address(2) + '/32')
        self.refused('create: .*: rank [12]: rank [12] .*no connection: 10[.]9[.]0[.][23]:', HEDDLE_TIMEOUT=str(DEADLINE))

    def another_job(self):
        """Rank 0 of one job and rank 1 of another meet at one port: neither takes the other for its own."""
        with self.job('rounds', '1', on_rank={0: {'HEDDLE_JOB_ID': 'one'}, 1: {'SLURM_JOB_ID': '17'}}, HEDDLE_TIMEOUT='3') as job:
            statuses = job.finish(30)
            check(statuses == [3, 3], f'statuses {statuses}', job)
            check(re.search('invalid argument: rank 1 .*another job than rank 0, whose HEDDLE_JOB_ID=one.*SLURM_JOB_ID=17', job.output(1)),
                  'rank 1 is not told', job)
            check(re.search('timeout: rank 1 of 2 did not connect .*another job', job.output(0)), 'rank 0 does not say whom it refused', job)
        # A job that nobody has named takes anybody.
        unnamed = dict.fromkeys(['TORCHELASTIC_RUN_ID', 'SLURM_JOB_ID', 'PBS_JOBID', 'LSB_JOBID'], '')
        self.works('rounds', '1', on_rank={1: {'HEDDLE_JOB_ID': 'one'}}, **unnamed)

    def link_local_only(self):
        """The loopback is no address for other hosts."""
        with self.several.start(1, ['ip', '-o', '-6', 'addr', 'show', 'dev', 'net0', 'scope', 'link'], stdout=subprocess.PIPE, text=True) as shown:
            master = re.search(r'fe80:[^/]*', shown.stdout.read()).group() + '%net0'
        time.sleep(2)  # until the address may be used
        self.on_all('addr', 'flush', 'dev', 'net0', 'scope', 'global')
        self.refused('unsupported.*no address but link-local ones .net0.', MASTER_ADDR=master)
        self.refused('unsupported.*rank [01].*has no address but its loopback.s', MASTER_ADDR=master, HEDDLE_TCP_INTERFACES='lo')

    def no_interface(self):
        says = 'unsupported.*no interface in HEDDLE_TCP_INTERFACES=none0 is up and has an address .*net0'
        self.refused(says, HEDDLE_TCP_INTERFACES='none0')
        self.refused(says, on_rank={1: {'HEDDLE_TCP_INTERFACES': 'none0'}})

    def no_congestion_control(self):
        self.refused("unsupported.*HEDDLE_TCP_CONGESTION='none0': the kernel has none of that name", HEDDLE_TCP_CONGESTION='none0')

    def few_descriptors(self):
        """Room for the listener, not for connections."""
        self.refused('out of memory.*file descriptors are open .ulimit -n.', prefix=('sh', '-c', 'ulimit -n 8 && exec "$@"', 'sh'))
        # MPI's messages, of which there are none without MPI, are not to blame.
        few = 'import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)); [os.dup2(0, n) for n in range(3, 33)]; ' \
              'os.execv(sys.argv[1], sys.argv[1:])'
        self.refused('create: out of memory: (?!.*mpi: ).*tcp: .*file descriptors are open .ulimit -n.', prefix=(sys.executable, '-c', few),
                     HEDDLE_TRANSPORTS='shm,mpi,tcp')


def main():
    program, modules, network, scenario, count, per_host = sys.argv[1:]
    kind = {'tcp': TcpScenarios, 'ucx': UcxScenarios}.get(network, Scenarios)
    try:
        with hosts.Hosts(int(count)) as several:
            getattr(kind(program, modules, network, several, int(per_host)), scenario)()
    except OSError as problem:
        print('skipped: no network namespaces for several hosts (needs root and iproute2):', problem)
        return SKIPPED
    except AssertionError as problem:
        print('FAILED:', problem)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
