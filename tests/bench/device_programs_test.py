"""Runs the benchmarks with buffers on a GPU, which here is the double of CUDA's driver: rows are right, and what cannot be says why.

usage: device_programs_test.py MPIEXEC DOUBLE PRELOAD PROGRAM...      DOUBLE: its libcuda.so.1; the first programs: allreduce, bcast, reduce and allgather, the last: sparse_allreduce
"""
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import native_ranks  # noqa: E402

QUICK = ["-m", "4:4K", "-x", "1", "-c", "--max-seconds", "0.05"]


def text_of(command, environment, wanted):
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env={**os.environ, **environment})
    assert done.returncode == wanted, (command, done.returncode, done.stdout, done.stderr)
    return done.stdout if wanted == 0 else done.stderr


def check_rows(text, memory):
    table = native_ranks.rows(text)
    assert [int(row[0]) for row in table] == [4 << i for i in range(11)], text
    assert all("Pass" in row for row in table), text
    assert f"{memory} memory of GPU 0, double of a GPU, number 0" in text, text


def check_sparse(text, algorithm):
    table = native_ranks.rows(text)
    assert [row[-2:] for row in table] == 2 * [["Pass", algorithm]], text
    assert "device memory of GPU 0, double of a GPU, number 0" in text, text


def main():
    mpiexec, library, preload, *programs, sparse = sys.argv[1:]
    double = {"LD_LIBRARY_PATH": os.path.dirname(library)}
    launch = [mpiexec, "-n", "2"]
    for number, program in enumerate(programs):
        place = ["cuda", "managed"][number % 2]
        memory = ["device", "managed"][number % 2]
        check_rows(text_of([*launch, program, "--native", "-d", place, "-i", "9", *QUICK], double, 0), memory)
    staged = ["-d", "cuda", "--vs", "staged", "--rounds", "6", "-i", "6", *QUICK]
    for program in programs[:4]:
        preloaded = [mpiexec, "-genv", "LD_PRELOAD", preload, "-n", "2", program]
        for command in ([*launch, program], preloaded):
            text = text_of([*command, *staged], double, 0)
            check_rows(text, "device")
            assert all(row[-1] == "-" for row in native_ranks.rows(text)), text
            assert "staged(us)" in text and "ratio staged/heddle" in text, text
            assert ("preloaded" in text) == (preload in command), text
    ranks = native_ranks.run([programs[0], "--native", *staged], 2, 100, **double)
    assert [status for status, _ in ranks] == [0, 0], ranks
    check_rows(ranks[0][1], "device")
    for api, algorithm in {"sparse": "gpu", "dense-out": "gpu", "in-place": "dense"}.items():
        arguments = ["--dimension", "20K", "--density", "0.1,30", "--api", api, "-d", "cuda", "-x", "1", "-i", "6", "--rounds", "6", "-c"]
        # By the GPUs whatever else would be faster on their double.
        check_sparse(text_of([*launch, sparse, *arguments], {**double, "HEDDLE_MEASURE": "0"}, 0), algorithm)
    # By what the host MPI cannot do, and where there is no GPU.
    for more in ([], ["--vs", "mpi"]):
        text = text_of([*launch, programs[0], "-d", "cuda", *more, *QUICK], double, 1)
        assert "-d cuda: the host MPI does not say that it takes GPU memory" in text, text
    # heddle would read GPU memory as the host's.
    for command in ([*launch, programs[0], "--native"], [mpiexec, "-genv", "LD_PRELOAD", preload, "-n", "2", programs[0]], [*launch, programs[1], "--vs", "staged"]):
        text = text_of([*command, "-d", "cuda", *QUICK], {**double, "HEDDLE_CUDA": "0"}, 1)
        assert text.count("-d cuda: with HEDDLE_CUDA=0 heddle takes every buffer for the host's") == 1, text
    text = text_of([*launch, sparse, "-d", "managed"], {**double, "HEDDLE_CUDA": "0"}, 1)
    assert text.count("-d managed: with HEDDLE_CUDA=0") == 1, text
    text = text_of([*launch, programs[0], "--native", "-d", "cuda", *QUICK], {**double, "FAKE_CUDA_FAIL": "cuInit:100:9"}, 1)
    assert re.search(r"^heddle_\w+: rank 1: -d cuda: CUDA's driver finds no GPU: CUDA_ERROR_NO_DEVICE .*; -d host measures", text, re.M), text


if __name__ == "__main__":
    main()
