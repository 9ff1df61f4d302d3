#!/usr/bin/env python3
"""What goes wrong with memory of a GPU in MPI programs, on CUDA's own driver, in ranks that share one GPU: whether there is an error or another way, and no rank waits for ever.

    LD_PRELOAD=libheddle_preload.so mpiexec -n 2 python3 tests/gpu/faults_of_python.py [--driver LIBCUDA] [--runtime LIBCUDART]

Needs mpi4py and numpy; with --runtime two run-time libraries are loaded, of which one is a copy of that file.
"""
import argparse
import ctypes
import shutil
import sys
import tempfile

import numpy
from mpi4py import MPI

COMM = MPI.COMM_WORLD
COUNT = 1 << 20  # float32


class Array:
    """Float32 in a GPU's memory, as mpi4py takes it."""

    def __init__(self, address, count=COUNT):
        self.address = address
        self.__cuda_array_interface__ = {'shape': (count,), 'typestr': '<f4', 'data': (address, False), 'version': 3}


class Driver:
    """Of CUDA's driver what is needed here, in the primary context of GPU 0."""

    def __init__(self, path):
        self._library = ctypes.CDLL(path)
        self.call('cuInit', 0)
        self.begin()

    def call(self, name, *arguments):
        error = getattr(self._library, name)(*arguments)
        if error != 0:
            raise RuntimeError(f'{name}: error {error}')

    def begin(self):
        context = ctypes.c_void_p()
        self.call('cuDevicePrimaryCtxRetain', ctypes.byref(context), 0)
        self.call('cuCtxSetCurrent', context)

    def reset(self):
        self.call('cuDevicePrimaryCtxReset_v2', 0)

    def allocate(self, size):
        at = ctypes.c_uint64()
        self.call('cuMemAlloc_v2', ctypes.byref(at), ctypes.c_size_t(size))
        return at.value

    def free(self, address):
        self.call('cuMemFree_v2', ctypes.c_uint64(address))

    def free_bytes(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call('cuMemGetInfo_v2', ctypes.byref(free), ctypes.byref(total))
        return free.value

    def put(self, address, values):
        self.call('cuMemcpyHtoD_v2', ctypes.c_uint64(address), values.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(values.nbytes))

    def get(self, address, count=COUNT):
        values = numpy.empty(count, numpy.float32)
        self.call('cuMemcpyDtoH_v2', values.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(address), ctypes.c_size_t(values.nbytes))
        return values


def is_summed(driver, address, calls=1, count=COUNT):
    """Sums in place, several times; whether all are right."""
    mine = numpy.arange(count, dtype=numpy.float32) % 1000 + COMM.rank
    wanted = COMM.size * (numpy.arange(count, dtype=numpy.float32) % 1000) + sum(range(COMM.size))
    right = True
    for _ in range(calls):
        driver.put(address, mine)
        COMM.Allreduce(MPI.IN_PLACE, Array(address, count))
        right = right and bool((driver.get(address, count) == wanted).all())
    return right


def fails(address):
    """Whether a sum is an error, in the words of it."""
    try:
        COMM.Allreduce(MPI.IN_PLACE, Array(address))
    except MPI.Exception as error:
        return f'an error: {error.Get_error_string()[:80]}'
    return None


def freed(driver):
    address = driver.allocate(1 << 28)  # what nothing else takes soon
    driver.free(address)
    return fails(address)


def foreign(driver):
    """An address of another process's, which is nothing here: each allocates as much as no other has before it."""
    mine = driver.allocate((COMM.rank + 1) * 64 << 20)
    others = COMM.allgather(mine + (COMM.rank * 64 << 20))
    said = fails(others[(COMM.rank + 1) % COMM.size] + (COMM.size * 128 << 20))
    driver.free(mine)
    return said


def no_memory(driver):
    """One takes all that there is, so that there is no room for scratch."""
    address = driver.allocate(4 * COUNT)
    taken = []
    COMM.Barrier()
    if COMM.rank == 0:
        size = 1 << 33
        while size >= 1 << 16:
            try:
                taken.append(driver.allocate(size))
            except RuntimeError:
                size //= 2
    COMM.Barrier()
    other = COMM.Dup()  # a communicator with nothing yet
    mine = numpy.full(COUNT, COMM.rank + 1, numpy.float32)
    right = True
    for _ in range(20):
        driver.put(address, mine)
        other.Allreduce(MPI.IN_PLACE, Array(address))
        right = right and bool((driver.get(address) == COMM.size * (COMM.size + 1) / 2).all())
    left = COMM.allreduce(driver.free_bytes(), MPI.MIN)
    COMM.Barrier()
    for one in taken:
        driver.free(one)
    driver.free(address)
    other.Free()
    return f'served, with {left >> 10} KiB left on the GPU' if right else None


def reset(driver):
    """A context that goes under us; what was in it is an error, and a new one serves."""
    address = driver.allocate(4 * COUNT)
    before = is_summed(driver, address, 12)
    COMM.Barrier()
    driver.reset()
    said = fails(address)
    driver.begin()
    fresh = driver.allocate(4 * COUNT)
    # The GPUs' way may be the first to find it, in one call that fails on all.
    after = False
    for _ in range(2):
        try:
            after = is_summed(driver, fresh, 12)
            break
        except MPI.Exception:
            continue
    driver.free(fresh)
    return f'{said}; then served anew' if before and said and after else None


def runtimes(driver, path):
    """Memory of two run-time libraries in one process, in one call."""
    with tempfile.NamedTemporaryFile(suffix='.so') as other:
        shutil.copyfile(path, other.name)
        both = [ctypes.CDLL(path), ctypes.CDLL(other.name)]
        addresses = []
        for library in both:
            at = ctypes.c_void_p()
            if library.cudaMalloc(ctypes.byref(at), ctypes.c_size_t(4 * COUNT)) != 0:
                return None
            addresses.append(at.value)
        distinct = ctypes.cast(both[0].cudaMalloc, ctypes.c_void_p).value != ctypes.cast(both[1].cudaMalloc, ctypes.c_void_p).value
        right = all(is_summed(driver, address, 3) for address in addresses)
        driver.put(addresses[0], numpy.ones(COUNT, numpy.float32))
        COMM.Allreduce(Array(addresses[0]), Array(addresses[1]))
        right = right and bool((driver.get(addresses[1]) == COMM.size).all())
        for library, address in zip(both, addresses):
            library.cudaFree(ctypes.c_void_p(address))
    return 'served' if right and distinct else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--driver', default='libcuda.so.1')
    parser.add_argument('--runtime')
    parser.add_argument('--double', action='store_true', help='of the driver, whose memory is the host\'s: nothing is used up')
    options = parser.parse_args()
    driver = Driver(options.driver)
    cases = {'freed memory': freed, 'an address of another process': foreign}
    if options.runtime:
        cases['two run-time libraries'] = lambda one: runtimes(one, options.runtime)
    if not options.double:
        cases['no memory left on the GPU'] = no_memory
    cases['a context that is reset'] = reset
    wrong = []
    for name, case in cases.items():
        said = COMM.allgather(case(driver))
        if None in said:
            wrong.append(name)
        if COMM.rank == 0:
            print(f'{name}: {said[0] if None not in said else f"WRONG, {said}"}', flush=True)
    if wrong:
        sys.exit('wrong: ' + ', '.join(wrong))


if __name__ == '__main__':
    main()
