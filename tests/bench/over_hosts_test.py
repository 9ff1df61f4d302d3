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


def main():
    preload = sys.argv[1]
    missing = run("--preload", "/nowhere/libheddle_preload.so")
    assert missing.returncode == 1 and "there is no such file" in missing.stderr, missing.stderr
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
        done = run("--preload", preload, "--peer", "mpich", "--hosts", "2", "--sizes", "4:8", "--turns", "2", "--timeout", "60", "--json", str(samples),
                   "--env", "HEDDLE_LOG=info")
        assert done.returncode == 0, done.stdout + done.stderr
        assert re.findall(r"^\| (\d+) \| [\d.,]+ \| [\d.,]+ \| [\d.]+ \| [\d.]+ to [\d.]+ \|$", done.stdout, re.M) == ["4", "8"], done.stdout
        assert re.search(r"Geometric mean of the ratios [\d.]+, the lowest [\d.]+; 2 turns", done.stdout), done.stdout
        assert "turn 2 of 2: heddle" in done.stderr, done.stderr
        assert len(re.findall(r"heddle\[0\] info: allreduce up to \d+ bytes: ", done.stderr)) >= 2, done.stderr
        kept = json.loads(samples.read_text())
        assert [len(kept[side]) for side in ("peer", "heddle")] == [2, 2], kept
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
