#!/usr/bin/env python3
"""examples/heddle_ctypes.py: two processes of Python sum exactly and by the largest entries, keep what that leaves out, and see heddle's errors."""
import array
import os
import pathlib
import subprocess
import sys

TESTS = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(TESTS / 'support'), str(TESTS.parent / 'examples')]
import heddle_ctypes  # noqa: E402
import native_ranks  # noqa: E402


def expect(found, wanted):
    if found != wanted: raise AssertionError(f'{found} instead of {wanted}')


def rank_main(rank):
    comm = heddle_ctypes.Communicator()

    def summed(values, sum_of):
        vector = array.array('f', values)
        sum_of(vector.buffer_info()[0], len(vector))
        return list(vector)

    expect(summed([rank, 1, 2.5], comm.allreduce), [1, 2, 5])
    half = lambda residual: lambda address, count: comm.compressed_allreduce(address, count, 'topk:0.5', residual)  # noqa: E731
    expect(summed([8, 1], half(None)), [16, 0])
    # What is not sent comes with the next vector, of the same name alone.
    expect(summed([8, 1], half('weights')), [16, 0])
    expect(summed([0, 1], half('biases')), [0, 2])
    expect(summed([0, 1], half('weights')), [0, 4])
    try:
        summed([0], lambda address, count: comm.compressed_allreduce(address, count, 'zip'))
        raise AssertionError('"zip" was taken')
    except RuntimeError as error:
        if 'heddle_compressed_allreduce' not in str(error) or 'zip' not in str(error): raise
    comm.close()


def main():
    if 'RANK' in os.environ:
        rank_main(int(os.environ['RANK']))
        return 0
    try:
        ranks = native_ranks.run([sys.executable, __file__], 2, timeout=60, HEDDLE_TIMEOUT='30', LIBHEDDLE=os.path.abspath(sys.argv[1]))
    except subprocess.TimeoutExpired:
        print('still running')
        return 1
    for rank, (status, output) in enumerate(ranks):
        if status != 0: print(f'rank {rank} ended with {status}: {output}')
    return 1 if any(status for status, _ in ranks) else 0


if __name__ == '__main__':
    sys.exit(main())
