#!/usr/bin/env python3
"""Runs clang-tidy on the sources of a build directory: run_clang_tidy.py BUILD SECONDS.

The most recently changed sources come first, and none is begun after SECONDS. A source that passed is not looked at
again until it, a header or the checks change. Exit status 1 where a source has findings.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time

CLANG_TIDY = "clang-tidy-14"


def tracked(root, *patterns):
    names = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=root, check=True, stdout=subprocess.PIPE)
    return [root / name for name in names.stdout.decode().split("\0") if name]


def newest_first(root):
    """{path: place}: 0 for the source that the latest commit changed."""
    log = subprocess.run(["git", "log", "--format=", "--name-only"], cwd=root, check=True, stdout=subprocess.PIPE)
    place = {}
    for name in log.stdout.decode().split("\n"):
        if name:
            place.setdefault(root / name, len(place))
    return place


def main():
    build, seconds = pathlib.Path(sys.argv[1]), float(sys.argv[2])
    root = pathlib.Path(__file__).resolve().parent.parent
    # A source of several programs is looked at once: as the first of them compiles it.
    commands = {}
    for command in json.loads((build / "compile_commands.json").read_text()):
        commands.setdefault((build / command["file"]).resolve(), command)
    place = newest_first(root)
    sources = sorted((s for s in tracked(root, "*.cpp") if s.resolve() in commands), key=lambda s: place.get(s, -1))

    common = hashlib.sha256()
    for path in [root / ".clang-tidy", *tracked(root, "*.h", "*.hpp")]:
        common.update(path.read_bytes())
    stamps = build / "clang-tidy-passed"
    stamps.mkdir(exist_ok=True)
    (stamps / "compile_commands.json").write_text(json.dumps(list(commands.values())))

    def stamp_of(source):
        key = common.copy()
        key.update(str(source).encode() + b"\0" + source.read_bytes())
        return stamps / key.hexdigest()

    begin = time.monotonic()

    def look_at(source):
        if time.monotonic() - begin > seconds:
            return "late", ""
        # clang knows neither every option of GCC's nor its warnings.
        done = subprocess.run([CLANG_TIDY, "-p", str(stamps), "--quiet", "--extra-arg=-Wno-unknown-warning-option",
                               "--extra-arg=-Wno-ignored-optimization-argument", "--extra-arg=-Wno-unused-command-line-argument", str(source)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False)
        if done.returncode == 0:
            stamp_of(source).touch()
            return "passed", ""
        return "failed", done.stdout.decode(errors="replace")

    waiting = [source for source in sources if not stamp_of(source).exists()]
    late = failed = 0
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for done, (outcome, text) in enumerate(pool.map(look_at, waiting), 1):
            late += outcome == "late"
            failed += outcome == "failed"
            if outcome == "failed":
                print(text, flush=True)
            if outcome != "late" and done % 20 == 0:
                print(f"    {done} of {len(waiting)}, {time.monotonic() - begin:.0f} s", flush=True)
    text = f"    {len(sources)} sources: {len(sources) - len(waiting)} passed before, {len(waiting) - late} looked at"
    print(text + (f", {late} left for want of time (--tidy-all, or another run, takes those)" if late else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
