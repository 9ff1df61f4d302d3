#!/usr/bin/env python3
"""Counts the instructions of one call on the way through heddle (callgrind) and holds them to expected.json.

Rank 0 runs under callgrind, the other rank beside it and ahead of it, so that nothing is waited for and the counts repeat
to the instruction. Another compiler or C library gives others, hence the tolerance, and hence --update, which writes
what it finds.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import native_ranks  # noqa: E402

HERE = pathlib.Path(__file__).parent
EXPECTED = HERE / "expected.json"
SKIPPED = 77
CALLS = 50
# name: (program, what, bytes)
CASES = {
    "preload allreduce 8 B": ("mpi", "allreduce", 8),
    "preload bcast 8 B, root": ("mpi", "bcast", 8),
    "preload bcast 8 B, reader": ("mpi", "bcast_from_peer", 8),
    "native allreduce 8 B": ("native", "allreduce", 8),
    "native bcast 8 B, root": ("native", "bcast", 8),
    "native persistent allreduce 8 B": ("native", "persistent", 8),
    "native complex product 8 KiB": ("native", "complex", 8192),
    "native long double sum 8 KiB": ("native", "extended", 8192),
}


def counting(out):
    return ["valgrind", "-q", "--tool=callgrind", "--toggle-collect=heddle_counted", "--dump-after=heddle_counted",
            f"--callgrind-out-file={out}"]


def clean_environment():
    env = {k: v for k, v in os.environ.items() if not k.startswith("HEDDLE_") and k != "LD_PRELOAD"}
    return env | {"HEDDLE_MEASURE": "0"}  # nothing that is counted may hang on what was measured


def commands_mpi(args, out, call):
    rank = ["env", f"LD_PRELOAD={os.path.abspath(args.preload)}"]
    return [([args.mpiexec, "-n", "1", *rank, *counting(out), args.mpi, *call, ":", "-n", "1", *rank, args.mpi, *call], {})]


def commands_native(args, out, call):
    counted, other = native_ranks.environments(2)
    return [([*counting(out), args.native, *call], counted), ([args.native, *call], other)]


def run(commands, timeout):
    """Runs the commands side by side; what they said where one fails or takes too long."""
    jobs = [subprocess.Popen(line, env={**clean_environment(), **extra}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, start_new_session=True) for line, extra in commands]
    said = []
    try:
        for job in jobs:
            said.append(job.communicate(timeout=timeout)[0])
    except subprocess.TimeoutExpired:
        sys.exit(f"still running after {timeout} s: {jobs[len(said)].args}")
    finally:
        for job in jobs:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
    if any(job.returncode != 0 for job in jobs):
        sys.exit("failed:\n" + "\n".join(said))


def count(args, case):
    program, what, size = CASES[case]
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "callgrind")
        commands = commands_mpi if program == "mpi" else commands_native
        run(commands(args, out, [what, str(size), str(CALLS)]), timeout=120)
        # A file for each call. The least: in that one the other rank was inside already.
        parts = [re.search(r"^totals: (\d+)", part.read_text(), re.M) for part in pathlib.Path(folder).iterdir()]
        return min(int(totals[1]) for totals in parts if totals and int(totals[1]) > 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mpiexec", default="")
    parser.add_argument("--preload", default="")
    parser.add_argument("--mpi", default="", help="the program counted_mpi; empty: none of its cases")
    parser.add_argument("--native", required=True, help="the program counted_native")
    parser.add_argument("--tolerance", type=float, default=0.05, help="relative")
    parser.add_argument("--update", action="store_true", help=f"write {EXPECTED.name}")
    args = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is not installed")
        return SKIPPED
    expected = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    found, bad = {}, []
    print(f"{'instructions of one call':34}{'expected':>10}{'found':>10}")
    for case, (program, *_) in CASES.items():
        if program == "mpi" and not args.mpi:
            continue
        found[case] = count(args, case)
        wanted = expected.get(case, 0)
        off = abs(found[case] - wanted) > args.tolerance * wanted
        print(f"{case:34}{wanted:10.0f}{found[case]:10}{'  <' if off else ''}", flush=True)
        if off:
            bad.append(case)
    if args.update:
        EXPECTED.write_text(json.dumps({**expected, **{case: n for case, n in found.items()}}, indent=2) + "\n")
        return 0
    if bad:
        print(f"off by more than {args.tolerance:.0%}; if that is meant, run this with --update")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
