"""Jobs of the native API on two devices: their ranks, what these say, and which deadline ends them."""
import os
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'support'))
import native_ranks  # noqa: E402

DEADLINE = 90  # seconds in which no rank of a job says anything
LATE = 'deadline'


class Job:
    """Ranks of the native API, each as if alone on its node, on the two devices by turns. `node_of`: the name of a rank's node."""

    def __init__(self, args, command, size=2, on=None, program=None, node_of=None, **settings):
        self.begin = time.monotonic()
        settings = {'HEDDLE_TRANSPORTS': 'verbs', 'HEDDLE_MODULES': args.modules.split(':')[0], 'HEDDLE_MEASURE': '0'} | settings
        self.ranks = []
        for rank, env in enumerate(native_ranks.environments(size, **settings)):
            env = {'HEDDLE_VERBS_DEVICE': f'rxe{rank % 2}'} | env | (on or {}).get(rank, {})
            name = ['unshare', '--uts', 'sh', '-c', 'hostname "$0"; exec "$@"', node_of(rank)] if node_of else []
            self.ranks.append(subprocess.Popen([*name, program or args.rank, *command], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        self.said = [[] for _ in self.ranks]
        self.open = set(range(len(self.ranks)))  # those that may still say something
        self.last_said = self.begin
        self.news = threading.Condition()
        self.listeners = [threading.Thread(target=self._listen, args=(rank,), daemon=True) for rank in range(len(self.ranks))]
        for listener in self.listeners:
            listener.start()

    def _listen(self, rank):
        for line in self.ranks[rank].stdout:
            with self.news:
                self.said[rank].append(line)
                self.last_said = time.monotonic()
                self.news.notify_all()
        with self.news:
            self.open.discard(rank)
            self.last_said = time.monotonic()
            self.news.notify_all()

    def wait_for(self, text, ranks=None, deadline=DEADLINE):
        """Until each of these ranks has said it; all ranks, where none are given. Up to there nothing is kept of what they said.

        AssertionError with all that was said, where one of them has ended, or none says anything for so long."""
        for rank in range(len(self.ranks)) if ranks is None else ranks:
            if not self._hears(rank, text, deadline):
                expect(False, self.end(deadline), f'rank {rank} has not said "{text}": ')
            with self.news:
                while text not in self.said[rank].pop(0):
                    pass

    def _hears(self, rank, text, deadline):
        with self.news:
            while not (heard := any(text in line for line in self.said[rank])) and rank in self.open and (left := self.last_said + deadline - time.monotonic()) > 0:
                self.news.wait(left)
        return heard

    def end(self, deadline=DEADLINE):
        """Exit status and output of each rank. All are killed when none of them has said anything for so long: a slow machine is no fault."""
        with self.news:
            while self.open and (left := self.last_said + deadline - time.monotonic()) > 0:
                self.news.wait(left)
            late = set(self.open)
        for rank in late:
            self.ranks[rank].kill()
        for listener in self.listeners:
            listener.join()
        results = []
        for rank, process in enumerate(self.ranks):
            process.wait()
            process.stdout.close()
            killed = f'{LATE}: no rank said anything for {deadline} s, and it was killed; it had said: ' if rank in late else ''
            results.append((process.returncode, killed + ''.join(self.said[rank]).strip()))
        return results


def expect(condition, results, what=''):
    """Ranks that the deadline ended come first: what the others say of them follows from that."""
    if not condition:
        first = sorted(enumerate(results), key=lambda r: not r[1][1].startswith(LATE))
        raise AssertionError(what + '; '.join(f'rank {i}: {output}' if output.startswith(LATE) else f'rank {i}: status {status}: {output}' for i, (status, output) in first))


def all_pass(results):
    expect(all(status == 0 for status, _ in results), results)


def kill_one_of_three(job):
    """The others must find out, soon."""
    job.ranks[1].send_signal(signal.SIGKILL)
    begin = time.monotonic()
    results = job.end()
    for survivor in (0, 2):
        expect(results[survivor][0] == 3 and 'rank 1 is gone' in results[survivor][1], results)
    return f'found after {time.monotonic() - begin:.1f} s'
