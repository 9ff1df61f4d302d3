"""heddle from Python, by way of ctypes: what examples/torch_ddp.py needs of it, to be copied and added to.

Vectors are given by address and number of elements, and lie in memory of the host's or a GPU's. Errors are RuntimeError with heddle's sentence.
A call lets other Python threads run, and waits for the other ranks; one thread at a time may call.
"""
import ctypes
import os

FLOAT32 = 10  # the numbers are those of heddle/heddle.h
SUM = 0
IN_PLACE = ctypes.c_void_p(1)


class Communicator:
    """All ranks that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or HEDDLE_MASTER_PORT, tell of (heddle_comm_create_env).

    `library`: path of libheddle.so, where the dynamic linker does not find it by its name.
    """

    def __init__(self, library=os.environ.get('LIBHEDDLE', 'libheddle.so.0.1')):
        self._library = ctypes.CDLL(library)
        self._library.heddle_last_error.restype = ctypes.c_char_p
        self._residuals = {}
        self._comm = ctypes.c_void_p()
        self._call('heddle_comm_create_env', ctypes.byref(self._comm))

    def _call(self, name, *arguments):
        if getattr(self._library, name)(*arguments) != 0:
            raise RuntimeError(f'{name}: {self._library.heddle_last_error().decode()}')

    def allreduce(self, address, count):
        """Replaces `count` float32 by their sums over all ranks."""
        self._call('heddle_allreduce', IN_PLACE, ctypes.c_void_p(address), ctypes.c_size_t(count), FLOAT32, SUM, self._comm)

    def compressed_allreduce(self, address, count, method, residual=None):
        """Likewise, with what `method` loses, "fp16" or "topk:0.01" (docs/compression.md). What that leaves out is kept for the next sum with the
        same `residual`, any name; None: it is not kept."""
        kept = None if residual is None else self._residual(residual, count)
        self._call('heddle_compressed_allreduce', IN_PLACE, ctypes.c_void_p(address), ctypes.c_size_t(count), method.encode(), ctypes.c_uint64(1),
                   kept, self._comm)

    def _residual(self, name, count):
        if (name, count) not in self._residuals:
            residual = ctypes.c_void_p()
            self._call('heddle_residual_create', ctypes.c_size_t(count), ctypes.byref(residual))
            self._residuals[name, count] = residual
        return self._residuals[name, count]

    def close(self):
        """The end: the communicator and all residuals are freed."""
        for residual in self._residuals.values():
            self._call('heddle_residual_destroy', residual)
        self._residuals.clear()
        self._call('heddle_comm_destroy', self._comm)
        self._comm = ctypes.c_void_p()
