#!/usr/bin/env python3
"""Writes the tables of docs/algorithms.md that say what is chosen by price, from `heddle-info --explain --json`.

    tools/price_tables.py dist/bin/heddle-info docs/algorithms.md            # replaces the tables in the page
    tools/price_tables.py --check dist/bin/heddle-info docs/algorithms.md    # exit status 1 where the page has other ones

A table of the page stands between the comments <!-- prices: OPTIONS --> and <!-- end of prices -->; OPTIONS are those of heddle-info but
for --nodes and -n, of which each row has its own.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

MARKED = re.compile(r"(<!-- prices: (?P<options>[^>]*) -->\n).*?(<!-- end of prices -->)", re.DOTALL)
COLUMNS = [("allreduce", 8), ("allreduce", 8 << 10), ("allreduce", 2 << 20), ("allreduce", 32 << 20),
           ("bcast", 8), ("bcast", 128 << 10), ("bcast", 32 << 20), ("reduce", 8), ("reduce", 128 << 10), ("reduce", 32 << 20),
           ("allgather", 8), ("allgather", 8 << 10), ("allgather", 2 << 20)]
ROWS = [(3, 1), (4, 1), (4, 2), (16, 1), (16, 8), (64, 1)]


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def time_text(us):
    value, unit = (us, "us") if us < 1000 else (us / 1000, "ms")
    return f"{value:.3g} {unit}"


def shape_text(candidate):
    """What is not as usual."""
    parts = []
    if candidate["radix"] != 2:
        parts.append(f"radix {candidate['radix']}")
    if candidate["chunks"] != 1:
        parts.append(f"chunks {candidate['chunks']}")
    if candidate["leaders"] != 1:
        parts.append(f"leaders {candidate['leaders']}")
    return f" ({', '.join(parts)})" if parts else ""


def cell(sizes, collective, size):
    at = next(s for s in sizes if s["collective"] == collective and s["bytes"] == size)
    chosen = next(c for c in at["candidates"] if c["algorithm"] == at["choice"])
    return f"{chosen['algorithm']}{shape_text(chosen)}: {time_text(chosen['us'])}"


def table(program, options):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HEDDLE_")}
    lines = ["| nodes x ranks | " + " | ".join(f"{c} {size_text(s)}" for c, s in COLUMNS) + " |",
             "|---|" + "---|" * len(COLUMNS)]
    for nodes, ranks in ROWS:
        out = subprocess.run([program, "--explain", "--json", "--nodes", str(nodes), "-n", str(ranks), *options.split()],
                             env=environment, stdout=subprocess.PIPE, encoding="utf-8", check=True, timeout=120).stdout
        sizes = json.loads(out)["sizes"]
        lines.append(f"| {nodes} x {ranks} | " + " | ".join(cell(sizes, c, s) for c, s in COLUMNS) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="heddle-info")
    parser.add_argument("page", type=pathlib.Path, help="docs/algorithms.md")
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 where the tables differ")
    args = parser.parse_args()
    text = args.page.read_text(encoding="utf-8")
    if not MARKED.search(text):
        sys.exit(f"price_tables.py: {args.page} has no table between <!-- prices: ... --> and <!-- end of prices -->")
    new = MARKED.sub(lambda match: match[1] + table(args.program, match["options"]) + match[3], text)
    if not args.check:
        args.page.write_text(new, encoding="utf-8")
    elif new != text:
        sys.exit(f"price_tables.py: the tables in {args.page} are not what {args.program} says; write them anew without --check")


if __name__ == "__main__":
    main()
