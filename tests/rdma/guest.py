#!/usr/bin/env python3
"""Runs inside the virtual machine: makes the devices, runs each case, and says how it went. Status 0: all passed.

A line of output begins with CASE, for a result, or with "...", for where it is.
"""
import argparse
import glob
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

from jobs import Job, all_pass, expect, kill_one_of_three

DEADLINE_OF_MPI = 240
# Where all live: in software emulation a long message under load may be tried as long as the default allows.
PATIENT = {'HEDDLE_VERBS_TIMEOUT': '30'}
SOON = {'HEDDLE_TIMEOUT': '30', 'HEDDLE_VERBS_TIMEOUT': '4'}  # for dead ranks to be found, and live ones of a busy machine not


def part(text):
    k, n = map(int, text.split('/'))
    return k, n


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--modules', required=True, help='folders with the network modules, separated by colons')
    parser.add_argument('--conformance', required=True)
    parser.add_argument('--rank', required=True)
    parser.add_argument('--paging', required=True, help='the double of devices that follow the page tables')
    parser.add_argument('--gpu-rank', help='with those below: a rank whose buffers are GPU memory')
    parser.add_argument('--cuda', help="the double of CUDA's driver")
    parser.add_argument('--dmabufs', help='the double of what registers its dmabufs')
    parser.add_argument('--mpiexec', help='with those below: jobs of the host MPI under the preload library, and nothing else')
    parser.add_argument('--preload')
    parser.add_argument('--jobs', action='append', default=[], help='program that compares with the host MPI\'s own results')
    parser.add_argument('--part', type=part, default=(0, 1), help='K/N: of the cases beside the first ones the part K of N')
    parser.add_argument('--only', default='', help='cases whose names contain this, or one of these, separated by commas')
    return parser.parse_args()


def run(line):
    done = subprocess.run(line.split(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f'{line}: {done.stdout}')


def make_links():
    """Two devices joined by a cable. Both ends are on this host, so rules see to it that packets between them use the cable."""
    run('ip link add v0 type veth peer name v1')
    run('sysctl -qw net.ipv4.conf.all.rp_filter=0')
    run('ip rule add pref 50 lookup local')
    run('ip rule del pref 0')
    for me, other in ((0, 1), (1, 0)):
        run(f'sysctl -qw net.ipv4.conf.v{me}.rp_filter=0 net.ipv4.conf.v{me}.accept_local=1')
        run(f'ip addr add 10.9.0.{me + 1}/24 dev v{me}')
        run(f'ip rule add pref 1{me} iif lo from 10.9.0.{me + 1} to 10.9.0.{other + 1} lookup 10{me}')
    for me in (0, 1):
        # One processor takes what comes out of each end, whichever of them sent it. Else packets of a connection whose sender moves between
        # two overtake each other, as on no real cable: the driver takes that for loss, and now and then does not recover from it.
        pathlib.Path(f'/sys/class/net/v{me}/queues/rx-0/rps_cpus').write_text(f'{1 << me:x}')
        run(f'ip link set v{me} mtu 4200 up')
    for me, other in ((0, 1), (1, 0)):
        run(f'ip route add 10.9.0.{other + 1} dev v{me} table 10{me}')
        run(f'rdma link add rxe{me} type rxe netdev v{me}')


def counters():
    """Of each device, as its driver counts: what was lost, came twice, was sent again."""
    return {path: int(pathlib.Path(path).read_text()) for path in glob.glob('/sys/class/infiniband/*/ports/*/hw_counters/*') if not path.endswith('/lifespan')}


def counted_since(before):
    """A line for each device."""
    lines = {}
    for path, now in sorted(counters().items()):
        device, name = path.split('/')[4], path.rsplit('/', 1)[1]
        if now != before.get(path, 0):
            lines.setdefault(device, []).append(f'{name} +{now - before.get(path, 0)}')
    return [f'... {device}: {", ".join(changes)}' for device, changes in lines.items()]


# ---- Cases. Each raises AssertionError with what happened; what it returns is a remark.

def conformance(args):
    done = subprocess.run([args.conformance, '--gtest_brief=1'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=400, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0:
        raise AssertionError('\n'.join(lines[-30:]))
    return lines[-1]


def collectives_2(args):
    all_pass(Job(args, ['conform'], **PATIENT).end())


def collectives_3(args):
    all_pass(Job(args, ['conform'], size=3, **PATIENT).end())


def ucx_folder(args):
    """Of the UCX module; None: not built."""
    return next((folder for folder in args.modules.split(':') if os.path.exists(f'{folder}/libheddle_network_ucx.so')), None)


# Left alone UCX takes both devices, and of their GIDs the link's own, which lead nowhere between two ends on one host. It makes
# connections over tcp: over ud_verbs UCX 1.13 aborts here.
UCX_RC = {'UCX_TLS': 'rc_verbs,tcp,self', 'UCX_IB_GID_INDEX': '1', 'UCX_LOG_LEVEL': 'info'}
UCX_DEVICES = {rank: {'UCX_NET_DEVICES': f'rxe{rank}:1,lo'} for rank in (0, 1)}
NO_UCX = 'skipped: no UCX module in this build'


def collectives_ucx(args):
    folder = ucx_folder(args)
    if folder is None:
        return NO_UCX
    results = Job(args, ['conform'], on=UCX_DEVICES, HEDDLE_TRANSPORTS='ucx', HEDDLE_MODULES=folder, **UCX_RC).end()
    all_pass(results)
    expect(all('(rc_verbs/rxe' in output for _, output in results), results)
    return ''


def preloaded(args, says, on, settings):
    """Each of the jobs on two ranks, each as if alone on its node, against the host MPI's own results."""
    said = []
    for program in args.jobs:
        line = [sys.executable, os.path.join(os.path.dirname(__file__), '..', 'preload', 'run_job.py'), '--mpiexec', args.mpiexec,
                '--preload', args.preload, '-n', '2', '--timeout', str(DEADLINE_OF_MPI), '--clean-shm', '--says', says]
        for name, value in {'HEDDLE_LOG': 'info', 'HEDDLE_MEASURE': '0', **settings}.items():
            line += ['--env', f'{name}={value}']
        for rank, own in on.items():
            for name, value in own.items():
                line += ['--env-on', f'{rank}:{name}={value}']
        done = subprocess.run([*line, '--', program, '1'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(f'{os.path.basename(program)}: {done.stdout[-3000:]}')
        said.append(os.path.basename(program))
    return ', '.join(said)


def mpi_jobs_verbs(args):
    devices = {rank: {'HEDDLE_VERBS_DEVICE': f'rxe{rank}'} for rank in (0, 1)}
    # The host MPI goes by UCX, whose datagrams time out in software emulation, and then it aborts: not by these devices.
    return preloaded(args, 'MPI_COMM_WORLD of 2: 2 ranks on 2 nodes, transports: verbs', devices,
                     {'HEDDLE_TRANSPORTS': 'verbs', 'HEDDLE_MODULES': args.modules.split(':')[0], 'UCX_TLS': 'tcp,self,sm'})


def mpi_jobs_ucx(args):
    folder = ucx_folder(args)
    if folder is None:
        return NO_UCX
    # The host MPI goes by UCX itself, with settings of its own.
    own = {rank: {f'HEDDLE_{name}': value for name, value in devices.items()} for rank, devices in UCX_DEVICES.items()}
    return preloaded(args, 'transports: ucx .UCX [0-9.]* over .*rc_verbs/rxe', own,
                     {'HEDDLE_TRANSPORTS': 'ucx', 'HEDDLE_MODULES': folder, 'UCX_TLS': 'tcp,self,sm'} |
                     {f'HEDDLE_{name}': value for name, value in UCX_RC.items()})


def several_devices(args):
    """Two nodes, told apart by their names, of two ranks: each rank has a device of its own."""
    nodes = {'size': 4, 'node_of': lambda rank: f'node{rank // 2}', 'HEDDLE_TRANSPORTS': 'shm,verbs'}
    results = Job(args, ['conform'], HEDDLE_VERBS_DEVICE='rxe0,rxe1:1', HEDDLE_LOG='info', **nodes, **PATIENT).end()
    all_pass(results)
    expect('4 ranks on 2 nodes' in results[0][1], results)
    # Those in the second place take the second.
    results = Job(args, ['loop', '1'], HEDDLE_VERBS_DEVICE='rxe0,mlx5_9', **nodes).end()
    expect(all(status == 3 and 'rank 1: HEDDLE_VERBS_DEVICE=mlx5_9: there is no such device' in output for status, output in results), results)


def paging(args):
    """A device that follows the page tables keeps registrations only where it is told to."""
    on_a_network = {'HEDDLE_LOG': 'info', 'LD_PRELOAD': args.paging}
    results = Job(args, ['loop', '1'], **on_a_network).end()
    all_pass(results)
    expect('transports: verbs' in results[0][1] and 'on-demand paging' not in results[0][1], results)
    results = Job(args, ['large'], HEDDLE_VERBS_ODP='1', **on_a_network).end()
    all_pass(results)
    expect(', on-demand paging' in results[0][1], results)


def seen_on(cable):
    """Of the packets of RoCE v2 that came: the byte of the IP header that switches go by, and whether it is a datagram's."""
    packets = set()
    while True:
        try:
            packet = cable.recv(2048)
        except BlockingIOError:
            return packets
        if packet[23] == socket.IPPROTO_UDP and int.from_bytes(packet[36:38], 'big') == 4791:
            packets.add((packet[15], packet[42] >> 5 == 3))


def traffic_class(args):
    """The fabric's settings are on all that is sent, hellos and messages."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)) as cable:
        cable.setblocking(False)
        cable.bind(('v0', 0))
        settings = {'HEDDLE_VERBS_TRAFFIC_CLASS': '104', 'HEDDLE_VERBS_SL': '3', 'HEDDLE_VERBS_PKEY': '0x7fff'}
        results = Job(args, ['loop', '1'], HEDDLE_LOG='info', **settings).end()
        seen = seen_on(cable)
    all_pass(results)
    expect(', traffic class 104 (DSCP 26), service level 3, partition 0xffff' in results[0][1], results)
    if seen != {(104, False), (104, True)}:
        raise AssertionError(f'what was sent: {seen}')


def wrong_partition(args):
    results = Job(args, ['loop', '1'], HEDDLE_VERBS_PKEY='0x5').end()
    for status, output in results:
        expect(status == 3 and 'is in no such partition; it is in: 0xffff' in output, results)
    return results[0][1]


def unheard(args):
    """What rank 0 sends gets lost: who waits is told what was tried."""
    run('ip neigh replace 10.9.0.2 lladdr 02:00:00:00:00:99 dev v0 nud permanent')
    try:
        results = Job(args, ['loop', '1'], HEDDLE_WARN_AFTER='2', HEDDLE_TIMEOUT='8').end()
    finally:
        run('ip neigh del 10.9.0.2 dev v0')
    for (status, output), me, other in zip(results, (1, 2), (2, 1)):
        said = re.search(r'still waiting; no answer to hellos for [2-4][.0-9]* s over rxe. port 1 .GID \d ::ffff:10.9.0.(.), to ::ffff:10.9.0.(.).(.*)', output)
        expect(status == 3 and said and said.groups() == (str(me), str(other), ", though that rank's own come" if me == 1 else ''), results)
    return results[0][1]


NO_GPUS = 'skipped: no kernels for GPUs in this build'


def gpu_direct(args):
    """The network's device reads and writes GPU memory, which is a double's, and nothing goes by the host."""
    if args.gpu_rank is None:
        return NO_GPUS
    settings = {'LD_PRELOAD': args.dmabufs, 'FAKE_CUDA_DMABUF': '1', 'HEDDLE_LOG': 'info', 'HEDDLE_GPUDIRECT': '1'} | PATIENT
    for size in (2, 3):
        results = Job(args, [args.cuda], size=size, program=args.gpu_rank, **settings).end()
        all_pass(results)
        expect('by GPUDirect RDMA' in results[0][1], results)
        copied = [int(re.search(r'all right, (\d+) bytes', output)[1]) for _, output in results]
        expect(max(copied) == 0, results)


def killed_gpu_rank(args):
    if args.gpu_rank is None:
        return NO_GPUS
    settings = {'LD_PRELOAD': args.dmabufs, 'FAKE_CUDA_DMABUF': '1', 'HEDDLE_GPUDIRECT': '1'} | SOON
    job = Job(args, [args.cuda, 'loop'], size=3, program=args.gpu_rank, **settings)
    job.wait_for('all right')
    return kill_one_of_three(job)


def gpu_not_direct(args):
    """The device's own answer to memory that it cannot reach: calls go by the host's."""
    if args.gpu_rank is None:
        return NO_GPUS
    results = Job(args, [args.cuda], program=args.gpu_rank, FAKE_CUDA_DMABUF='1', HEDDLE_LOG='info', **PATIENT).end()
    all_pass(results)
    lines = [line for _, output in results for line in output.splitlines() if 'no GPUDirect RDMA' in line]
    expect(len(lines) == 1 and "takes no memory of the GPU's (by dmabuf: " in lines[0], results)
    return lines[0]


def overlap(args):
    all_pass(Job(args, ['overlap'], **PATIENT).end())


def elsewhere(args):
    all_pass(Job(args, ['elsewhere'], HEDDLE_TIMEOUT='60').end())


def passed_over(args):
    """A transport that cannot be used is said in one line, and the next one of the list serves."""
    results = Job(args, ['loop', '1'], HEDDLE_TRANSPORTS='shm,ucx,verbs', HEDDLE_VERBS_GID='77').end()
    all_pass(results)  # one node: shared memory is all that is needed
    results = Job(args, ['loop', '1'], HEDDLE_TRANSPORTS='tcp,verbs', HEDDLE_TCP_INTERFACES='none', HEDDLE_LOG='info').end()
    all_pass(results)
    lines = [line for line in results[0][1].splitlines() if 'HEDDLE_TRANSPORTS' in line]
    expect(len(lines) == 1 and 'verbs is used between nodes, not tcp' in lines[0], results)
    return lines[0]


def busy_rank(args):
    """One that computes for longer than a dead one takes to be found is not dead."""
    all_pass(Job(args, ['busy', '6'], HEDDLE_VERBS_TIMEOUT='2').end())


def killed_rank(args):
    job = Job(args, ['loop'], size=3, **SOON)
    job.wait_for('pid')
    return kill_one_of_three(job)


def killed_rank_by_default(args):
    """Seven tries of 1.07 s instead of 0.54 s."""
    job = Job(args, ['loop'], size=3, HEDDLE_TIMEOUT='30')
    job.wait_for('pid')
    begin = time.monotonic()
    remark = kill_one_of_three(job)
    if time.monotonic() - begin < 5:
        raise AssertionError(remark)
    return remark


def killed_busy_rank(args):
    """Nothing is on its way to the rank that dies: whoever waits for it has to ask."""
    job = Job(args, ['busy', '100'], **SOON)
    job.wait_for('busy', [1])
    time.sleep(2)
    job.ranks[1].send_signal(signal.SIGKILL)
    begin = time.monotonic()
    results = job.end()
    expect(results[0][0] == 3 and 'rank 1 is gone' in results[0][1], results)
    return f'found after {time.monotonic() - begin:.1f} s'


def link_down(args):
    job = Job(args, ['loop'], **SOON)
    job.wait_for('pid')
    run('ip link set v0 down')
    begin = time.monotonic()
    results = job.end()
    run('ip link set v0 up')
    run('ip route replace 10.9.0.2 dev v0 table 100')
    run('ip route replace 10.9.0.1 dev v1 table 101')
    for status, output in results:
        expect(status == 3 and 'down' in output and 'rxe' in output, results)
    return f'found after {time.monotonic() - begin:.1f} s: {results[0][1]}'


def wrong_gid(args):
    results = Job(args, ['loop', '1'], HEDDLE_VERBS_GID='77').end()
    for _, output in results:
        expect('HEDDLE_VERBS_GID=77' in output and 'no such GID; there are: 0 (' in output, results)
    expect(all(status == 3 for status, _ in results), results)
    return results[0][1]


def no_device(args):
    results = Job(args, ['loop', '1'], HEDDLE_VERBS_DEVICE='mlx5_9').end()
    for status, output in results:
        expect(status == 3 and 'no such device; there are: rxe0, rxe1' in output, results)
    return results[0][1]


def port_down(args):
    run('ip link set v1 down')
    try:
        results = Job(args, ['loop', '1']).end()
    finally:
        run('ip link set v1 up')
        run('ip route replace 10.9.0.1 dev v1 table 101')
        run('ip route replace 10.9.0.2 dev v0 table 100')
    for status, output in results:
        expect(status == 3 and 'port 1 is down' in output, results)
    return results[0][1]


def mtus_differ(args):
    run('ip link set v1 mtu 1500')
    try:
        job = Job(args, ['loop', '1'], HEDDLE_LOG='info')
        results = job.end()
    finally:
        run('ip link set v1 mtu 4200')
    all_pass(results)


ALWAYS = [conformance, collectives_2]
IN_PARTS = [collectives_3, collectives_ucx, several_devices, paging, gpu_direct, gpu_not_direct, killed_gpu_rank, overlap, elsewhere, passed_over, traffic_class, wrong_partition, unheard, wrong_gid, no_device, port_down, mtus_differ, busy_rank, killed_rank, killed_rank_by_default, killed_busy_rank, link_down]
OF_MPI = [mpi_jobs_verbs, mpi_jobs_ucx]


def main():
    args = parse()
    print('... making two devices', flush=True)
    make_links()
    failed = 0
    k, n = args.part
    for case in OF_MPI if args.jobs else ALWAYS + IN_PARTS[k::n]:
        if not any(part in case.__name__ for part in args.only.split(',')):
            continue
        print(f'... {case.__name__}', flush=True)
        begin = time.monotonic()
        before = counters()
        try:
            remark = case(args) or ''
            verdict = 'skipped' if remark.startswith('skipped') else 'passed'
        except (AssertionError, OSError, subprocess.SubprocessError) as problem:
            verdict, remark = 'FAILED', str(problem)
            failed += 1
        print(f'CASE {case.__name__} {verdict} {time.monotonic() - begin:.1f} s {remark}', flush=True)
        if verdict == 'FAILED':
            print('\n'.join(counted_since(before)) or '... the devices have counted nothing', flush=True)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
