"""Runs heddle_sparse_allreduce and the example that trains on text as a user would, and checks what they print.

usage: sparse_programs_test.py mpi|environment|example MPIEXEC PROGRAM
"""
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))
import native_ranks  # noqa: E402

PATTERNS = ("uniform", "clustered", "identical", "skewed")
APIS = ("sparse", "dense-out", "in-place")
DENSITIES = (0.1, 3, 100)
DIMENSION = 20 * 1024
SMALL = ["--dimension", "20K", "--density", "0.1,3,100", "-x", "2", "-i", "6", "--rounds", "6", "-c"]


def run(mpiexec, ranks, program, *arguments, **settings):
    command = [mpiexec, "-n", str(ranks), program, *arguments]
    return subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, timeout=100, check=False)


def check_rows(text, pattern, columns):
    table = native_ranks.rows(text)
    assert [float(row[0]) for row in table] == list(DENSITIES), text
    for row in table:
        assert len(row) == columns, row
        entries, result = int(row[1]), int(row[2])
        assert entries == round(float(row[0]) / 100 * DIMENSION), row
        assert entries <= result <= DIMENSION, row
        assert pattern != "identical" or result == entries, row
        low, high = map(float, row[5].split(".."))
        assert 0 < low <= float(row[4]) <= high, row
        assert row[-2] == "Pass", row
    return table


def check_json(path, table, sides):
    document = json.loads(path.read_text())
    assert document["ranks"] == 2 and document["machine"]["cores"] >= 1, document
    assert document["settings"]["dimension"] == DIMENSION, document
    noise = document["interruptions"]
    assert noise["most"] >= 0 and (noise["most"] > 0) == (noise["per_second"] > 0) and "lack_of_cores" in document, document
    for row, printed in zip(document["rows"], table):
        assert row["entries"] == int(printed[1]) and row["valid"], row
        assert all(len(row[side]["samples_us"]) == 6 for side in sides), row
    shown = subprocess.run([sys.executable, ROOT / "tools" / "show_results.py", path], capture_output=True, text=True, check=True)
    assert len([line for line in shown.stdout.splitlines() if line.startswith("|")]) == 2 + len(DENSITIES), shown.stdout


def check_sent(mpiexec, program):
    """What was sent is shown where entries are sent, not where ranks read them in each other's memory."""
    path = pathlib.Path(tempfile.mkdtemp()) / "results.json"
    for transports, sent in (("shm", False), ("mpi", True)):
        done = run(mpiexec, 2, program, *SMALL[:2], "--density", "0.1,3", "-i", "6", "--rounds", "6", "--no-mpi", "--wire", "--json", str(path),
                   HEDDLE_TRANSPORTS=transports)
        assert done.returncode == 0, done.stdout + done.stderr
        for row, kept in zip(native_ranks.rows(done.stdout), json.loads(path.read_text())["rows"]):
            assert row[-1] != "dense", row
            assert [cell != "-" for cell in row[-4:-1]] == 3 * [sent], row
            assert [kept[key] is not None for key in ("bytes_sent", "wire_share")] == 2 * [sent], kept
            assert not sent or int(row[-4]) >= 4 * int(row[1]), row


def check_mpi(mpiexec, program):
    check_sent(mpiexec, program)
    path = pathlib.Path(tempfile.mkdtemp()) / "results.json"
    for pattern, api in itertools.product(PATTERNS, APIS):
        # Not always: MPICH spins while it waits, which takes long where cores are busy.
        host = pattern == "uniform"
        arguments = [*SMALL, "--pattern", pattern, "--api", api, "--json", str(path), *([] if host else ["--no-mpi"])]
        done = run(mpiexec, 2, program, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        check_json(path, check_rows(done.stdout, pattern, 16 if host else 13), ("sparse", "dense", *["host"] * host))
    done = run(mpiexec, 2, program, *SMALL, "-f")
    assert done.returncode == 0, done.stdout + done.stderr
    for row in check_rows(done.stdout, "uniform", 19):
        for median, interval in ((4, 5), (6, 7), (8, 9)):
            low, high = map(float, row[interval].split(".."))
            assert 0 < low <= float(row[median]) <= high, row
        assert row[-3] == "6", row
    done = run(mpiexec, 2, program, *SMALL, "--no-mpi", "--wire", "--dtype", "float64")
    assert done.returncode == 0, done.stdout + done.stderr
    check_rows(done.stdout, "uniform", 14)
    assert re.search(r"^# Wire: \d+ MB/s from rank 0 to rank 1$", done.stdout, re.M), done.stdout
    for wrong in (["--dimension", "5X"], ["--density", "101"], ["--pattern", "striped"]):
        done = run(mpiexec, 2, program, *wrong)
        assert done.returncode != 0 and wrong[1] in done.stderr, done.stderr


def check_environment(program):
    outputs = native_ranks.run([program, *SMALL], 3, timeout=60)
    assert all(status == 0 for status, _ in outputs), outputs
    check_rows(outputs[0][1], "uniform", 13)
    assert not outputs[1][1], outputs


def accuracies(text):
    found = re.findall(r"^ +\d+  [\d.]+    (\d\.\d{4}) +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+$", text, re.M)
    assert len(found) == 2, text
    return [float(value) for value in found]


def check_example(mpiexec, program):
    if not os.path.isdir("/usr/share/common-licenses"):
        print("skipped: this system has no /usr/share/common-licenses")
        sys.exit(77)
    asked = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60, check=False)
    assert asked.returncode == 0 and not asked.stderr and "  --bits N " in asked.stdout, asked
    small = ["--bits", "18", "--epochs", "2"]
    last = []
    for ranks, more in ((2, []), (2, ["--dense"]), (3, [])):
        done = run(mpiexec, ranks, program, *small, *more)
        assert done.returncode == 0, done.stdout + done.stderr
        last.append(accuracies(done.stdout)[-1])
    (status, output), = native_ranks.run([program, *small], 1, timeout=60)
    assert status == 0, output
    last.append(accuracies(output)[-1])
    # However it is summed, and by how many ranks: the same but for rounding.
    assert min(last) > 0.8 and max(last) - min(last) < 0.01, last


def main():
    what, mpiexec, program = sys.argv[1:]
    if what == "mpi":
        check_mpi(mpiexec, program)
    elif what == "environment":
        check_environment(program)
    else:
        check_example(mpiexec, program)


if __name__ == "__main__":
    main()
