#!/usr/bin/env python3
"""over_hosts.py from end to end on two hosts: MPICH beside heddle, its table and its samples.

    over_hosts_test.py PRELOAD

Exit status 77: skipped, and why is said.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))
import hosts  # noqa: E402

SKIPPED = 77


def run(*arguments):
    return subprocess.run([sys.executable, ROOT / "osu_style_bench" / "over_hosts.py", *arguments], capture_output=True, text=True, check=False)


def check_refusals(preload):
    """Before anything is measured, in a line that names the value."""
    for wrong in (["--turns", "0"], ["--sizes", "0:4"], ["--sizes", "8:4"], ["--sizes", "4:12"], ["--sizes", "4:x"], ["--hosts", "0"], ["--timeout", "nan"],
                  ["--env", "HEDDLE_LOG"], ["--json", "/nowhere/samples.json"], ["--json", "/"]):
        done = run("--preload", preload, *wrong)
        last = done.stderr.splitlines()[-1]
        assert done.returncode == 2 and wrong[0] in last and f"'{wrong[1]}'" in last and not done.stdout, done.stderr


def main():
    preload = sys.argv[1]
    missing = run("--preload", "/nowhere/libheddle_preload.so")
    assert missing.returncode == 2 and "there is no such file" in missing.stderr, missing.stderr
    check_refusals(preload)
    try:
        with hosts.Hosts(2):
            pass
    except OSError as error:
        print(f"no hosts here: {error}")
        return SKIPPED
    if shutil.which("mpicc.mpich") is None:
        print("no mpicc.mpich here")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
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
        assert kept["schema"] == 1 and kept["heddle_source"] and re.fullmatch(r"[0-9a-f]{64}", kept["preload"]["sha256"]), kept
        assert kept["cpu"] and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", kept["date"]), kept
        assert re.fullmatch(r"mpich \d[\d.]*", kept["peer_version"]) and kept["under_version"] == kept["peer_version"], kept
        assert "mpiexec.mpich" in kept["launchers"]["heddle"] and "/" not in "".join(kept["launchers"]["peer"]), kept
        assert all(us > 0 for side in ("peer", "heddle") for turn in kept[side] for us in turn.values()), kept
        if not pathlib.Path("/usr/include/gloo/allreduce.h").is_file():
            print("no gloo here")
            return 0
        for algorithm in ([], ["--peer-env", "GLOO_ALGORITHM=halving_doubling"]):
            done = run("--preload", preload, "--peer", "gloo", "--hosts", "2", "--sizes", "4:8", "--turns", "1", "--timeout", "60", *algorithm)
            assert done.returncode == 0, done.stdout + done.stderr
            assert re.findall(r"^\| (\d+) \| [\d.,]+ \|", done.stdout, re.M) == ["4", "8"] and "| bytes | gloo, us |" in done.stdout, done.stdout
    return 0


if __name__ == "__main__":
    sys.exit(main())
