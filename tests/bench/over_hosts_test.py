#!/usr/bin/env python3
"""over_hosts.py from end to end on two hosts: MPICH beside heddle, its table and its samples.

    over_hosts_test.py PRELOAD

Exit status 77: skipped, and why is said.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import unittest.mock

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "osu_style_bench")]
import hosts  # noqa: E402
import over_hosts  # noqa: E402

SKIPPED = 77


def run(*arguments):
    return subprocess.run([sys.executable, ROOT / "osu_style_bench" / "over_hosts.py", *arguments], capture_output=True, text=True, check=False)


def check_refusals(preload):
    """Before anything is measured, in a line that names the value."""
    for wrong in (["--turns", "0"], ["--sizes", "0:4"], ["--sizes", "8:4"], ["--sizes", "4:12"], ["--sizes", "4:x"], ["--hosts", "0"], ["--timeout", "nan"],
                  ["--env", "HEDDLE_LOG"], ["--tuned", " "], ["--json", "/nowhere/samples.json"], ["--json", "/"]):
        done = run("--preload", preload, *wrong)
        last = done.stderr.splitlines()[-1]
        assert done.returncode == 2 and wrong[0] in last and f"'{wrong[1]}'" in last and not done.stdout, done.stderr


# Stays until it is told to end.
KEEPS = "import hosts, time\nwith hosts.Hosts(1):\n    print('up', flush=True)\n    time.sleep(100)\n"


def namespaces(process):
    return [name for name in os.listdir("/run/netns") if name.startswith(f"test{process.pid}h")]


def check_ends():
    """Nothing is left of hosts whose process is ended; of one that is killed, nothing once the next makes its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        keeper = subprocess.Popen([sys.executable, "-c", KEEPS], cwd=ROOT / "tests" / "support", stdout=subprocess.PIPE, text=True)
        assert keeper.stdout.readline() == "up\n"
        assert len(namespaces(keeper)) == 2, os.listdir("/run/netns")
        keeper.send_signal(number)
        keeper.wait(timeout=60)
        if number == signal.SIGKILL:
            hosts.sweep()
        assert namespaces(keeper) == [], (number, os.listdir("/run/netns"))


# Right at first, as where another algorithm takes over once a size has come up often; on one rank alone.
WRONG = """#include <mpi.h>
int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  static long calls;
  int rank = 0;
  const int status = PMPI_Allreduce(in, out, count, type, op, comm);
  PMPI_Comm_rank(comm, &rank);
  if (count == 256 && ++calls > 40 && rank == 1) ((float*)out)[100] += 1;
  return status;
}

/* In another order, on one rank alone. */
int MPI_Allgather(const void* in, int count, MPI_Datatype type, void* out, int out_count, MPI_Datatype out_type, MPI_Comm comm) {
  static long calls;
  int rank = 0;
  const int status = PMPI_Allgather(in, count, type, out, out_count, out_type, comm);
  PMPI_Comm_rank(comm, &rank);
  for (int i = 0; count == 256 && calls > 40 && rank == 1 && i < count; ++i) {
    const float first = ((float*)out)[i];
    ((float*)out)[i] = ((float*)out)[count + i];
    ((float*)out)[count + i] = first;
  }
  ++calls;
  return status;
}

/* Without what rank 0 has. */
int MPI_Reduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
  static long calls;
  static float zeros[256];
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  return PMPI_Reduce(count == 256 && ++calls > 40 && rank == 0 ? zeros : in, out, count, type, op, root, comm);
}
"""


def check_wrong(folder):
    """A library whose results are wrong once it is timed gets no time."""
    loop, library, source = (str(pathlib.Path(folder, name)) for name in ("loop", "wrong.so", "wrong.c"))
    pathlib.Path(source).write_text(WRONG)
    subprocess.run(["mpicc.mpich", "-O2", ROOT / "osu_style_bench" / "peer_loop.c", "-o", loop], check=True)
    subprocess.run(["mpicc.mpich", "-shared", "-fPIC", source, "-o", library], check=True)
    for collective, said in (("allreduce", "rank 1: 1 of 256 results are wrong"), ("reduce", ": 256 of 256 results are wrong"), ("allgather", "rank 1: 512 of 512 results are wrong")):
        for preload, status in (([], 0), (["-genv", "LD_PRELOAD", library], 1)):
            done = subprocess.run(["mpiexec.mpich", *preload, "-n", "2", loop, collective, "1024", "1024"], capture_output=True, text=True, timeout=60, check=False)
            assert (done.returncode != 0) == status and done.stderr.count(said) == status, done.stdout + done.stderr
            assert ("1024" in done.stdout) != status, done.stdout


def check_cores():
    """Hosts have cores of their own where there are enough, and Open MPI yields where there are not."""
    several = hosts.Hosts(2)
    cores = len(os.sched_getaffinity(0))
    assert hosts.shares_of([0, 1, 4, 5], 2) == ["0,1", "4,5"]
    crowded = several.mpiexec("mpiexec.openmpi", 2 * cores, bind=True)
    assert "mpi_yield_when_idle" in crowded and "taskset" not in crowded, crowded
    if cores >= 2:
        bound = several.mpiexec("mpiexec.openmpi", 2, bind=True)
        assert "mpi_yield_when_idle" not in bound and "taskset" in bound, bound
    assert "mpi_yield_when_idle" in several.mpiexec("mpiexec.openmpi", 2), "tests run beside others"
    # Two for each of four hosts, although there are five ranks only.
    for cores, enough in ((6, False), (8, True)):
        with unittest.mock.patch.object(os, "sched_getaffinity", return_value=set(range(cores))):
            line = hosts.Hosts(4).mpiexec("mpiexec.openmpi", 5, bind=True)
        shares = [word for word in line if word.startswith(hosts.SHARES + "=")]
        assert shares == ([f"{hosts.SHARES}=0,1 2,3 4,5 6,7"] if enough else []), line


def check_tuned(preload, samples):
    """The peer's further settings take their turns too, and the best of all is shown at each size."""
    other = "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=recursive_doubling MPIR_CVAR_ALLREDUCE_DEVICE_COLLECTIVE=0"
    done = run("--preload", preload, "--peer", "mpich", "--hosts", "2", "--sizes", "1K:2K", "--turns", "3", "--timeout", "60", "--json", str(samples),
               "--congestion", "reno", "--tuned", other, "--tuned", "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=reduce_scatter_allgather")
    assert done.returncode == 0, done.stdout + done.stderr
    kept = json.loads(samples.read_text())
    assert kept["congestion_control"] == "reno", kept
    assert list(kept["tuned"]) == [other, "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=reduce_scatter_allgather"] and all(len(turns) == 3 for turns in kept["tuned"].values()), kept
    unknown = run("--preload", preload, "--hosts", "2", "--congestion", "no_such_one")
    assert unknown.returncode != 0 and "no_such_one" in unknown.stderr, unknown.stderr
    runs = [kept["peer"], *kept["tuned"].values()]
    medians = {size: [statistics.median(turn[size] for turn in turns) for turns in runs] for size in ("1024", "2048")}
    table = re.findall(r"^\| (\d+) \| (\d) \| ([\d.,]+) \|", done.stdout, re.M)
    assert [(size, int(best), us) for size, best, us in table] == [(size, m.index(min(m)), f"{min(m):,.1f}") for size, m in medians.items()], done.stdout
    assert all(f"turn 3 of 3: {side}" in done.stderr for side in ("mpich", other, "heddle")), done.stderr
    shown = subprocess.run([sys.executable, ROOT / "tools" / "show_results.py", samples], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in shown.stdout and f"1. {other}" in shown.stdout, shown.stdout


def check_sources():
    """A library in somebody else's repository is not of that one's sources."""
    with tempfile.TemporaryDirectory() as folder:
        git = ["git", "-C", folder, "-c", "user.name=somebody", "-c", "user.email=somebody@localhost", "-c", "commit.gpgsign=false"]
        for command in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "--message", "theirs"]):
            subprocess.run([*git, *command], check=True)
        assert over_hosts.described(pathlib.Path(folder)) == "", over_hosts.described(pathlib.Path(folder))
    if (ROOT / ".git").exists():
        assert re.fullmatch(r"(\S+-\d+-g)?[0-9a-f]{7,}(-dirty)?", over_hosts.described(ROOT / "docs")), over_hosts.described(ROOT / "docs")


def main():
    preload = sys.argv[1]
    missing = run("--preload", "/nowhere/libheddle_preload.so")
    assert missing.returncode == 2 and "there is no such file" in missing.stderr, missing.stderr
    check_refusals(preload)
    if shutil.which("git"):
        check_sources()
    try:
        with hosts.Hosts(2):
            pass
    except OSError as error:
        print(f"no hosts here: {error}")
        return SKIPPED
    check_ends()
    check_cores()
    if shutil.which("mpicc.mpich") is None:
        print("no mpicc.mpich here")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        check_wrong(folder)
        samples = pathlib.Path(folder, "samples.json")
        done = run("--preload", preload, "--peer", "mpich", "--hosts", "2", "--sizes", "1K:2k", "--turns", "2", "--timeout", "60", "--json", str(samples),
                   "--env", "HEDDLE_LOG=info")
        assert done.returncode == 0, done.stdout + done.stderr
        assert re.findall(r"^\| (\d+) \| [\d.,]+ \| [\d.,]+ \| [\d.]+ \| [\d.]+ to [\d.]+ \|$", done.stdout, re.M) == ["1024", "2048"], done.stdout
        # Two turns are too few for an interval.
        assert "| ratio | range |" in done.stdout and "95%" not in done.stdout, done.stdout
        shown = subprocess.run([sys.executable, ROOT / "tools" / "show_results.py", samples], capture_output=True, text=True, check=True)
        assert done.stdout.strip() in shown.stdout, shown.stdout
        assert re.search(r"Geometric mean of the ratios [\d.]+, the lowest [\d.]+; 2 turns", done.stdout), done.stdout
        assert "turn 2 of 2: heddle" in done.stderr, done.stderr
        assert len(re.findall(r"heddle\[0\] info: allreduce up to \d+ bytes: ", done.stderr)) >= 2, done.stderr
        kept = json.loads(samples.read_text())
        assert [len(kept[side]) for side in ("peer", "heddle")] == [2, 2], kept
        assert kept["schema"] == 1 and (kept["heddle_source"] or not (ROOT / ".git").exists()) and re.fullmatch(r"[0-9a-f]{64}", kept["preload"]["sha256"]), kept
        assert kept["cpu"] and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", kept["date"]), kept
        assert re.fullmatch(r"mpich \d[\d.]*", kept["peer_version"]) and kept["under_version"] == kept["peer_version"], kept
        assert "mpiexec.mpich" in kept["launchers"]["heddle"] and "/" not in "".join(kept["launchers"]["peer"]), kept
        assert all(us > 0 for side in ("peer", "heddle") for turn in kept[side] for us in turn.values()), kept
        check_tuned(preload, samples)
        if not pathlib.Path("/usr/include/gloo/allreduce.h").is_file():
            print("no gloo here")
            return 0
        for more in ([], ["--peer-env", "GLOO_ALGORITHM=halving_doubling"], ["--collective", "reduce"], ["--collective", "allgather"]):
            done = run("--preload", preload, "--peer", "gloo", "--hosts", "2", "--sizes", "4:8", "--turns", "1", "--timeout", "60", *more)
            assert done.returncode == 0, done.stdout + done.stderr
            assert re.findall(r"^\| (\d+) \| [\d.,]+ \|", done.stdout, re.M) == ["4", "8"] and "| bytes | gloo, us |" in done.stdout, done.stdout
    return 0


if __name__ == "__main__":
    sys.exit(main())
