"""Runs a benchmark or the training job as a user would and checks that what it prints can be read.

usage: programs_test.py WHAT MPIEXEC PROGRAM [ARGUMENT...]      WHAT: plain, full, overlap, versus, train, refuse, keep, preload, alone, alloc, ends, crowded, barrier, roots, wrong, algorithm or memory
"""
import datetime
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


CORES = r"\d+(-\d+)?(,\d+(-\d+)?)*"
# One is no UTF-8.
SETTINGS = {"HEDDLE_WARN_AFTER": "11", "HEDDLE_JOB_ID": "a\udcff", "MPIR_CVAR_CH4_NETMOD": "ofi", "UCX_LOG_LEVEL": "warn", "FI_LOG_LEVEL": "warn", "OMPI_MCA_btl": "self"}


def run(mpiexec, program, arguments):
    command = [mpiexec, "-n", "2", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env={**os.environ, **SETTINGS})


def check_plain(table, columns):
    for row in table:
        assert len(row) == columns, row
        assert float(row[1]) > 0, row
        assert len(row[1].partition(".")[2]) == (3 if float(row[1]) < 10 else 2), row
        assert row[-1] == "Pass", row
    if columns == 6:
        for row in table:
            assert float(row[2]) <= float(row[1]) <= float(row[3]), row
            assert int(row[4]) == 20, row


def check_overlap(table, text):
    for row in table:
        assert len(row) == 7, row
        overall, compute, pure = map(float, row[1:4])
        assert overall > 0 and compute > 0 and pure > 0, row
        assert row[5:] == ["20", "Pass"], row
        # Rows whose times do not tell say so: the collective took longer than the rounds before let expect, for one.
        if row[4] == "-":
            assert re.search(rf"^# {row[0]} B: no overlap is shown, since ", text, re.M), text
            continue
        overlap = float(row[4])
        assert 0 <= overlap <= 100 and 0.49 < compute / pure < 2.05 and overall > 0.94 * max(pure, compute), row
        least = min(pure, compute)
        wanted = 100 * (pure + compute - overall) / least
        # The row's own figures are rounded to hundredths.
        assert abs(overlap - min(max(wanted, 0), 100)) < 2 + 3 / least, row


def check_versus(table):
    for row in table:
        assert len(row) == 8, row
        host, heddle, ratio, low, high = map(float, row[1:6])
        assert host > 0 and heddle > 0 and low <= high, row
        # The row's own figures are rounded to a nanosecond.
        assert abs(ratio - host / heddle) <= 0.001 + ratio * (0.001 / host + 0.001 / heddle), row
        assert row[6] == "Pass", row


def check_json(path, table, arguments):
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    assert document["ranks"] == 2 and document["hosts"] == 1 and document["machine"]["cores"] >= 1, document
    assert "MPICH" in document["mpi_library"], document
    assert document["schema"] == 1 and document["command"][1:] == arguments and document["command"][0].endswith(document["program"]), document
    build = document["build"]
    assert build["type"] and (build["source"] == document["heddle_version"] or re.fullmatch(r"(\S+-\d+-g)?[0-9a-f]{7,}(-dirty)?", build["source"])), build
    assert len(document["rank_core_lists"]) == 2 and document["rank_core_lists"][0] == document["machine"]["core_list"], document
    assert all(re.fullmatch(CORES, cores) for cores in document["rank_core_lists"]), document
    noise = document["interruptions"]
    assert noise["most"] >= 0 and (noise["most"] > 0) == (noise["per_second"] > 0), noise
    assert (document["lack_of_cores"] is None) == (document["machine"]["cores"] > 1), document
    age = datetime.datetime.now(datetime.timezone.utc) - datetime.datetime.strptime(document["date"], "%Y-%m-%dT%H:%M:%S%z")
    assert datetime.timedelta() <= age < datetime.timedelta(hours=1), document
    environment = document["environment"]
    assert environment["HEDDLE_WARN_AFTER"] == "11" and environment["HEDDLE_JOB_ID"] == "a\ufffd", environment
    assert all(name.startswith(("HEDDLE_", "MPIR_CVAR_", "UCX_", "FI_", "OMPI_MCA_")) for name in environment) and set(SETTINGS) <= set(environment), environment
    assert re.fullmatch(CORES, document["machine"]["core_list"]), document
    settings = document["settings"]
    assert 0 < settings["memory_allocated_bytes"] <= settings["memory_allowed_bytes"] <= settings["memory_bytes"] == 256 << 20, settings
    # 63 buffers of 16 KiB, or of all ranks', and a line or less, in pools of whole pages; a bcast, and what is in place, have one.
    lengths = [16384, 16384 * document["ranks"] if document["program"] == "heddle_allgather" else 16384]
    if "bcast" in document["program"] or settings["in_place"]:
        del lengths[0]
    assert settings["in_place"] == ("--in-place" in arguments), settings
    assert settings["memory_allocated_bytes"] == sum((63 * (length + 64) + 4095) // 4096 * 4096 for length in lengths), settings
    assert all(row["buffers"] == 63 for row in document["rows"]), document
    for row in document["rows"]:
        if "ratio" in row:
            assert row["rounds"] == len(row["host"]["samples_us"]) == 6, row
            assert all(row[side]["iterations"] == 6 * row[side]["calls_per_sample"] >= 20 for side in ("host", "heddle")), row
        if "overall_us" in row:
            assert (row["overlap_percent"] is None) == ("no_overlap_because" in row), row
    assert (settings["iterations"], settings["warmup"], settings["validate"]) == (20, 5, True), settings
    root = "moving" if document["program"] != "heddle_ibcast" and settings["versus"] == "mpi" else "fixed"
    assert settings.get("root") == (root if document["program"] in ("heddle_bcast", "heddle_reduce", "heddle_ibcast") else None), settings
    assert [row["bytes"] for row in document["rows"]] == [int(row[0]) for row in table], document


def check_train(text):
    result = text.strip().splitlines()[-1]
    pattern = (r"result loss=\d+\.\d{4} accuracy=(\d\.\d{4}) seconds=(\d+\.\d+) collective_seconds=(\d+\.\d+) "
               r"collectives=(\d+)")
    match = re.fullmatch(pattern, result)
    assert match, text
    assert float(match[1]) > 0.5, text  # two epochs; guessing gives 0.1
    assert float(match[3]) <= float(match[2]), text
    assert int(match[4]) == 3 + 2 * (90 * 4 + 1), text  # three layers, sent at first and summed 90 times an epoch
    assert len(re.findall(r"^epoch +\d+ +loss [\d.]+ +accuracy [\d.]+ +[\d.]+ s$", text, re.M)) == 2, text


def check_keep(mpiexec, program):
    """A program that does not get to its end leaves the results of an earlier run as they are."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write("earlier")
        # There is no GPU, or none whose memory the host MPI takes.
        done = run(mpiexec, program, ["-d", "cuda", "--json", path])
        assert done.returncode != 0, done.stdout
        with open(path, encoding="utf-8") as file:
            assert file.read() == "earlier"
        assert os.listdir(folder) == ["results.json"], os.listdir(folder)
        for wrong, why in ((os.path.join(folder, "no", "such.json"), "cannot be written"), (folder, "something else than a file")):
            done = run(mpiexec, program, ["--json", wrong])
            assert done.returncode != 0 and done.stderr.count(f"--json {wrong}") == 1 and why in done.stderr, done.stderr


def check_preload(mpiexec, program, preload):
    """Who serves is said, and nobody else's times are called heddle's. A program of messages is the host's whatever is set."""
    barrier = "barrier" in os.path.basename(program)
    collective = os.path.basename(program) in ("heddle_allreduce", "heddle_reduce", "heddle_allgather", "heddle_barrier")
    for setting, served in (("1", collective), ("0", False)):
        launch = ["-genv", "LD_PRELOAD", preload, "-genv", "HEDDLE_ENABLE", setting, "-n", "2", program, *([] if barrier else ["-m", "8:8"]), "-x", "5", "-i", "20"]
        for more in ([], ["--vs", "mpi", "--rounds", "6"]) if collective else ([],):
            path = pathlib.Path(tempfile.mkdtemp(), "results.json")
            done = subprocess.run([mpiexec, *launch, *more, "--json", path], capture_output=True, text=True, timeout=100, check=False)
            assert done.returncode == 0, done.stderr
            shown = subprocess.run([sys.executable, ROOT / "tools" / "show_results.py", path], capture_output=True, text=True, check=True).stdout
            assert ("both sides are the host MPI" in shown) == ("| preload, us |" in shown) == (more != [] and not served), shown
            assert re.search(r"^# MPI with heddle [\d.]+ preloaded; ", done.stdout, re.M) is not None or not served, done.stdout
            assert more == [] or " over 1 size; lowest " in done.stdout, done.stdout
            assert ("preloaded, but the host MPI serves this" in done.stdout) != served, done.stdout
            assert ("heddle(us)" in done.stdout) == (served and more != []), done.stdout
            assert done.stderr.count("both columns are its times") == (more != [] and not served), done.stderr


def check_barrier(mpiexec, program):
    """One row, of no bytes, by heddle's own API."""
    done = run(mpiexec, program, ["--native", "-f", "-i", "20"])
    assert done.returncode == 0, done.stderr
    (row,) = native_ranks.rows(done.stdout)
    assert row[0] == "0" and 0 < float(row[2]) <= float(row[1]) <= float(row[3]) and row[4] == "20", row
    assert "Datatype" not in done.stdout, done.stdout


def check_alone(mpiexec, program, of_two):
    """By a launcher of another MPI, which says how many there are, and which this one does not understand."""
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PMI", "OMPI", "HYDRA"))}
        outputs = []
        for rank in ("0", "1"):
            done = subprocess.run([program], env={**environment, name: "2", name.replace("SIZE", "RANK"): rank}, capture_output=True, text=True,
                                  timeout=100, check=False)
            assert done.returncode == 1 and not done.stdout, done.stdout
            outputs.append(done.stderr)
        for part in ("belongs to another MPI than the program was built for (MPICH", name, "-n 2"):
            assert part in outputs[0], outputs
        assert outputs[1] == "", outputs
    # By nobody.
    done = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1, done.stdout
    assert re.search(r"needs 2 ranks or more; start it with mpiexec -n 2, or without MPI with RANK, .*MASTER_PORT and --native ", done.stderr), done.stderr
    # Three, of a program for two.
    ranks = native_ranks.run([of_two, "--native"], 3, 100)
    assert "needs 2 ranks, not 3; start it with mpiexec -n 2, or without MPI with RANK, " in ranks[0][1], ranks


def check_alloc(mpiexec, program, counter):
    """With --alloc-mem buffers are MPI_Alloc_mem's, without they are not."""
    pools = "1" if "bcast" in os.path.basename(program) else "2"
    for more, calls in (([], "0"), (["--alloc-mem"], pools)):
        launch = ["-genv", "LD_PRELOAD", counter, "-n", "2", program, "-m", "4:8", "-x", "1", "-i", "5", *more]
        done = subprocess.run([mpiexec, *launch], capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
        assert re.findall(r"MPI_Alloc_mem: (\d+) calls", done.stderr) == 2 * [calls], done.stderr


def check_ends(mpiexec, program, failing):
    """Where memory runs out on one rank all end, and it says why, and gives that time to be read."""
    small = ["--dimension", "1M"] if "sparse" in os.path.basename(program) else ["-m", "4:1M"]
    with tempfile.TemporaryDirectory() as folder:
        words = pathlib.Path(folder, "words")
        done = subprocess.run([mpiexec, "-genv", "LD_PRELOAD", failing, "-genv", "LAST_WORDS", words, "-n", "2", program, *small], capture_output=True, text=True,
                              timeout=30, check=False)
        assert done.returncode != 0 and "rank 1: memory ran out" in done.stderr, done.stderr
        assert words.read_text() == "waited\n", words.read_text()


def check_roots(mpiexec, program, counter):
    """Of a comparison each rank is the root by turns; with --root fixed it is rank 0 in calls that are timed."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results.json")
        for more, root in (([], "moving"), (["--root", "fixed"], "fixed")):
            launch = ["-genv", "LD_PRELOAD", counter, "-n", "2", program, "--vs", "mpi", "-m", "4:8", "-x", "1", "-i", "120", "--rounds", "6", "-c", "--json", path, *more]
            done = subprocess.run([mpiexec, *launch], capture_output=True, text=True, timeout=100, check=False)
            assert done.returncode == 0 and "Fail" not in done.stdout, done.stdout + done.stderr
            assert ("Root: 0." in done.stdout) == (root == "fixed"), done.stdout
            with open(path, encoding="utf-8") as file:
                assert json.load(file)["settings"]["root"] == root
            counts = re.findall(r"roots: (\d+) (\d+)", done.stderr)
            assert len(counts) == 2, done.stderr
            for from_0, from_1 in ((int(a), int(b)) for a, b in counts):
                assert from_0 > 3 * from_1 if root == "fixed" else abs(from_0 - from_1) < from_1 / 4, done.stderr


def check_wrong(mpiexec, program, wrong, *more):
    """Collectives that are wrong on one rank, or with one of the roots: each row says so, and the program fails."""
    for kind in ("none", "rank", "result", "input", *more):
        launch = ["-genv", "LD_PRELOAD", wrong, "-genv", "WRONG", kind, "-n", "2", program, "-m", "4:4K", "-x", "1", "-i", "5", "-c"]
        done = subprocess.run([mpiexec, *launch], capture_output=True, text=True, timeout=100, check=False)
        assert (done.returncode == 0) == (kind == "none") == ("results are wrong" not in done.stderr), (kind, done.stdout, done.stderr)
        verdicts = [row[-1] for row in native_ranks.rows(done.stdout)]
        assert verdicts == 11 * ["Pass" if kind == "none" else "Fail"], (kind, done.stdout)


def check_algorithm(mpiexec, program, *preload):
    """The algorithm of a row is the program's collective's, by heddle's own API and preloaded."""
    names = {"allreduce": "ring", "bcast": "chain", "reduce": "knomial", "allgather": "bruck"}
    rules = {"version": 1, "rules": [{"collective": collective, "algorithm": name} for collective, name in names.items()]}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "tuning.json")
        path.write_text(json.dumps(rules))
        for more in ([], *(["-genv", "LD_PRELOAD", library] for library in preload)):
            launch = ["-genv", "HEDDLE_TUNING_FILE", path, *more, "-n", "2", program, "--vs", "mpi", "--rounds", "6", "-m", "8:16", "-i", "6"]
            done = subprocess.run([mpiexec, *launch], capture_output=True, text=True, timeout=100, check=False)
            assert done.returncode == 0, done.stderr
            wanted = names[os.path.basename(program).removeprefix("heddle_")]
            assert [row[-1] for row in native_ranks.rows(done.stdout)] == 2 * [wanted], done.stdout


def check_memory(mpiexec, program):
    """What an allgather takes grows with the ranks."""
    for ranks, limit, status in ((2, "7M", 0), (3, "7M", 1), (3, "9M", 0)):
        done = subprocess.run([mpiexec, "-n", str(ranks), program, "--native", "-M", limit, "-m", "1M:1M", "-x", "1", "-i", "2", "-c"],
                              capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == status and len(native_ranks.rows(done.stdout)) == 1 - status, done.stdout + done.stderr
        assert done.stderr.count("-M 7M: buffers for messages of 1048576 bytes take 9M; ") == status, done.stderr


def check_crowded(mpiexec, program):
    """Two ranks that may use one core: it is said, once, and kept."""
    core = min(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results.json")
        done = subprocess.run(["taskset", "-c", str(core), mpiexec, "-n", "2", program, "--native", "-m", "4:8", "-x", "1", "-i", "5", "--json", path],
                              capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
        assert len(re.findall(rf"^{os.path.basename(program)}: warning: 2 ranks on \S+ share 1 core; ", done.stderr, re.M)) == 1, done.stderr
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        assert document["lack_of_cores"].endswith("share 1 core") and document["rank_core_lists"] == 2 * [str(core)], document
        assert document["interruptions"]["most"] >= 0, document


def check_full(program):
    """A table that cannot be written is a failure."""
    ranks = []
    for rank, environment in enumerate(native_ranks.environments(2)):
        with open("/dev/full" if rank == 0 else "/dev/null", "w", encoding="utf-8") as out:
            ranks.append(subprocess.Popen([program, "--native", "-m", "4:8", "-i", "5"], env=environment, stdout=out, stderr=subprocess.PIPE, text=True))
    errors = [rank.communicate(timeout=100)[1] for rank in ranks]
    assert ranks[0].returncode == 1 and "standard output cannot be written" in errors[0], errors


def main():
    what, mpiexec, program, *arguments = sys.argv[1:]
    if what == "train":
        done = run(mpiexec, program, ["--epochs", "2", "--hidden", "48", "--data", "drawn"])
        assert done.returncode == 0, done.stderr
        return check_train(done.stdout)
    if what == "refuse":
        done = run(mpiexec, program, arguments)
        assert done.returncode != 0, done.stdout
        assert arguments[-1] in done.stderr, done.stderr
        return None
    if what == "preload":
        return check_preload(mpiexec, program, *arguments)
    if what == "barrier":
        return check_barrier(mpiexec, program)
    if what == "alloc":
        return check_alloc(mpiexec, program, *arguments)
    if what == "ends":
        return check_ends(mpiexec, program, *arguments)
    if what == "crowded":
        return check_crowded(mpiexec, program)
    if what == "roots":
        return check_roots(mpiexec, program, *arguments)
    if what == "wrong":
        return check_wrong(mpiexec, program, *arguments)
    if what == "memory":
        return check_memory(mpiexec, program)
    if what == "algorithm":
        return check_algorithm(mpiexec, program, *arguments)
    if what == "alone":
        check_alone(mpiexec, program, *arguments)
        return check_full(program)
    if what == "keep":
        return check_keep(mpiexec, program)
    path = os.path.join(tempfile.mkdtemp(), "results.json")
    arguments += ["-m", "4:16K", "-x", "5", "-i", "20", "-c", "--json", path]
    arguments += {"plain": [], "full": ["-f"], "overlap": ["-f", "--tests", "3"], "versus": ["--vs", "mpi", "--rounds", "6"]}[what]
    done = run(mpiexec, program, arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    table = native_ranks.rows(done.stdout)
    assert [int(row[0]) for row in table] == [4 << i for i in range(13)], done.stdout
    if what == "versus":
        check_versus(table)
        assert re.search(r"^# Geometric mean of ratios [\d.]+ ", done.stdout, re.M), done.stdout
    elif what == "overlap":
        check_overlap(table, done.stdout)
    else:
        check_plain(table, 6 if what == "full" else 3)
    return check_json(path, table, arguments)


if __name__ == "__main__":
    main()
