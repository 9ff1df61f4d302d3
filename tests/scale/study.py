#!/usr/bin/env python3
"""Collectives of many simulated ranks: heddle's beside those of SimGrid's mpich, ompi, mvapich2 and impi selectors.

    study.py short PROGRAM PRELOAD                                16 and 64 ranks, results checked: a test
    study.py full PROGRAM PRELOAD OUT.json [PLATFORM:RANKS ...]   what is not in the file yet is run and added, largest last
    study.py again PROGRAM PRELOAD OUT.json [PLATFORM:RANKS ...]  heddle's side of what is in the file: the others' times repeat exactly
    study.py prices PROGRAM PRELOAD OUT.json PLATFORM:RANKS       what heddle expected beside what came, in the middle of size classes
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SELECTORS = ["mpich", "ompi", "mvapich2", "impi"]
SIZES = [8, 1 << 10, 32 << 10, 1 << 20, 16 << 20]
CHECKED = 4096  # bytes; larger vectors of all ranks would not fit into memory
# Every link 100 Gbit/s each way and 250 ns; hosts of one rank.
PLATFORMS = {
    "fat_tree": ("FAT_TREE", {16: "2;4,4;1,4;1,1", 64: "2;8,8;1,8;1,1", 256: "2;16,16;1,16;1,1", 1024: "2;32,32;1,32;1,1",
                              4096: "3;16,16,16;1,16,16;1,1,1"}),
    "dragonfly": ("DRAGONFLY", {16: "2,1;2,1;2,1;2", 64: "4,1;2,1;4,1;2", 256: "4,1;4,1;4,1;4", 1024: "8,1;4,1;8,1;4",
                                4096: "16,1;4,1;16,1;4"}),
    "torus": ("TORUS", {16: "4,2,2", 64: "4,4,4", 256: "8,8,4", 1024: "16,8,8", 4096: "16,16,16"}),
}
# The same for all sides. 0.2 us at each end of a message, of which up to 64 KiB leave without waiting for the receiver.
SETTINGS = ["smpi/privatization:no", "smpi/simulate-computation:no", "smpi/os:0:2e-7:0", "smpi/ois:0:2e-7:0", "smpi/or:0:2e-7:0",
            "smpi/async-small-thresh:65536", "smpi/send-is-detached-thresh:65536", "smpi/bw-factor:0:1", "smpi/lat-factor:0:1",
            "smpi/shared-malloc:local", "contexts/stack-size:512"]
HEDDLE = {"HEDDLE_TRANSPORTS": "mpi", "HEDDLE_SPIN": "0", "HEDDLE_WARN_AFTER": "0", "HEDDLE_MEASURE": "0"}


def platform_xml(kind, ranks):
    topology, parameters = PLATFORMS[kind]
    return f"""<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1"><cluster id="c" prefix="h" suffix="" radical="0-{ranks - 1}" speed="10Gf" bw="12.5GBps" lat="250ns"
 sharing_policy="SPLITDUPLEX" loopback_bw="50GBps" loopback_lat="100ns" topology="{topology}" topo_parameters="{parameters[ranks]}"/>
</platform>
"""


def simulate(program, preload, kind, ranks, cases, timeout, sides="all", log="warn"):
    """Yields a dictionary for each case as it comes. With a log of "info" it has heddle's price, which is one for all sizes of a class."""
    price_us = {}
    with tempfile.TemporaryDirectory() as folder:
        platform, hosts = pathlib.Path(folder, "platform.xml"), pathlib.Path(folder, "hosts")
        platform.write_text(platform_xml(kind, ranks))
        hosts.write_text("".join(f"h{i}\n" for i in range(ranks)))
        command = ["smpirun", "-np", str(ranks), "-platform", platform, "-hostfile", hosts, "--log=root.thres:warning",
                   *(f"--cfg={s}" for s in SETTINGS), program, str(CHECKED), sides, *(f"{c}:{b}" for c, b in cases)]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HEDDLE_")}
        forced = {k: v for k, v in os.environ.items() if k == "HEDDLE_ALGORITHM"}
        environment |= HEDDLE | forced | {"LD_PRELOAD": str(preload), "HEDDLE_LOG": log}
        with subprocess.Popen(["timeout", str(timeout), *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env=environment, stdin=subprocess.DEVNULL) as job:
            for line in job.stdout:
                words = line.split()
                if priced := re.search(r"(allreduce|bcast) up to \d+ bytes: .* by price, ([\d.]+) us", line):
                    price_us[priced[1]] = float(priced[2])
                    continue
                if not words or words[0] != "result":
                    print(line, end="", file=sys.stderr)
                    continue
                yield {"platform": kind, "ranks": ranks, "collective": words[1], "bytes": int(words[2]),
                       "host_us": dict(zip(SELECTORS, map(float, words[3:7]))), "heddle_us": float(words[7]),
                       "algorithm": words[8], "results": words[9],
                       **({"price_us": price_us[words[1]]} if words[1] in price_us else {})}
        if job.returncode != 0:
            raise SystemExit(f"{kind}, {ranks} ranks: the simulation ended with {job.returncode}")


def show(row):
    name, best = min(row["host_us"].items(), key=lambda item: item[1])
    print(f"{row['platform']:10} {row['ranks']:5} {row['collective']:9} {row['bytes']:9} B  heddle {row['heddle_us']:10.2f} us "
          f"({row['algorithm']}), {name} {best:10.2f} us, ratio {best / row['heddle_us']:.2f}, {row['results']}", flush=True)


def short(program, preload):
    for kind, ranks, sizes in (("fat_tree", 16, (8, 4096)), ("torus", 64, (8, 4096)), ("dragonfly", 16, (8,))):
        cases = [(c, b) for c in ("allreduce", "bcast") for b in sizes]
        rows = list(simulate(program, preload, kind, ranks, cases, 100))
        for row in rows:
            show(row)
        assert len(rows) == len(cases), f"{len(rows)} of {len(cases)} cases were run"
        for row in rows:
            assert row["results"] == "checked", row
            # A message takes a microsecond or so: an hour, or nothing, is no simulated time.
            assert all(1 < us < 1000 for us in (row["heddle_us"], *row["host_us"].values())), row
            best = min(row["host_us"].values())
            assert row["heddle_us"] < 2 * best, f"heddle should be about as fast as the best: {row}"


def write(out, rows):
    out.write_text(json.dumps({"settings": SETTINGS, "heddle": HEDDLE, "platforms": PLATFORMS, "rows": rows}, indent=1) + "\n")


def full(program, preload, out, wanted):
    rows = json.loads(out.read_text())["rows"] if out.exists() else []
    todo = [w.split(":") for w in wanted] or [(k, r) for r in (64, 256, 1024, 4096) for k in PLATFORMS]
    for kind, ranks in ((k, int(r)) for k, r in todo):
        have = {(r["collective"], r["bytes"]) for r in rows if (r["platform"], r["ranks"]) == (kind, ranks)}
        # At 4,096 ranks a ring alone is 33 million messages.
        sizes = [s for s in SIZES if ranks < 4096 or s <= 32 << 10]
        cases = [(c, s) for s in sizes for c in ("allreduce", "bcast") if (c, s) not in have]
        for row in simulate(program, preload, kind, ranks, cases, 7200) if cases else ():
            show(row)
            rows.append(row)
            write(out, rows)


def again(program, preload, out, wanted):
    rows = json.loads(out.read_text())["rows"]
    there = {(r["platform"], r["ranks"], r["collective"], r["bytes"]): r for r in rows}
    for kind, ranks in dict.fromkeys((k, r) for k, r, _, _ in there):
        if wanted and f"{kind}:{ranks}" not in wanted:
            continue
        cases = [(c, b) for k, r, c, b in sorted(there, key=lambda t: t[3]) if (k, r) == (kind, ranks)]
        for row in simulate(program, preload, kind, ranks, cases, 7200, "heddle"):
            old = there[kind, ranks, row["collective"], row["bytes"]]
            old.update(row | {"host_us": old["host_us"]})
            show(old)
            write(out, rows)


def prices(program, preload, out, where):
    kind, ranks = where.split(":")
    cases = [(c, s + s // 2) for c in ("allreduce", "bcast") for s in SIZES]
    rows = []
    for row in simulate(program, preload, kind, int(ranks), cases, 7200, "heddle", "info"):
        rows.append(row)
    out.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "short":
        short(*sys.argv[2:])
    elif len(sys.argv) >= 5 and sys.argv[1] == "full":
        full(sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4]), sys.argv[5:])
    elif len(sys.argv) >= 5 and sys.argv[1] == "again":
        again(sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4]), sys.argv[5:])
    elif len(sys.argv) == 6 and sys.argv[1] == "prices":
        prices(sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4]), sys.argv[5])
    else:
        sys.exit(__doc__)
