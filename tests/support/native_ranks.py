"""Ranks of the native API started by hand: as many processes that find each other over TCP, without MPI. And the rows of what benchmarks print."""
import os
import socket
import subprocess


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return str(s.getsockname()[1])


def environments(size, **settings):
    """What each rank is started with: nothing of heddle's but `settings`."""
    env = {k: v for k, v in os.environ.items() if not k.startswith('HEDDLE_') and k != 'LD_PRELOAD'}
    env |= {'WORLD_SIZE': str(size), 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': free_port()} | settings
    return [env | {'RANK': str(rank)} for rank in range(size)]


def run(command, size, timeout, **settings):
    """The exit status and the output of each rank; none is left behind."""
    ranks = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
             for env in environments(size, **settings)]
    try:
        outputs = [rank.communicate(timeout=timeout)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return [(rank.returncode, output) for rank, output in zip(ranks, outputs)]


def rows(text):
    """The cells of a benchmark's rows, among which warnings may stand."""
    return [line.split() for line in text.splitlines() if line and not line.startswith('#') and ': warning: ' not in line]
