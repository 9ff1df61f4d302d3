#!/usr/bin/env python3
"""Compares runs of the training job on the host MPI (host.*.out) with runs under heddle (heddle.*.out, .err).

Prints a table of medians and which algorithm served which message sizes. Exit status 1 where loss or accuracy
differ, or where heddle served nothing.
"""
import pathlib
import re
import statistics
import sys

SERVED = re.compile(r" info: (\w+) up to (\d+) bytes: (\S+) ")
LEFT = re.compile(r": (left to the host MPI: .*)$")


def read_results(folder, kind):
    results = []
    for path in sorted(folder.glob(f"{kind}.*.out")):
        line = next(line for line in path.read_text().splitlines() if line.startswith("result "))
        results.append({key: float(value) for key, value in re.findall(r"(\w+)=(\S+)", line)})
    return results


def read_decisions(folder):
    """{(collective, smallest size of the class): algorithm}, and the reasons why calls went to the host."""
    served, left = {}, []
    for line in (folder / "heddle.1.err").read_text().splitlines():
        if match := SERVED.search(line):
            # A size class ends one below a power of two.
            served[match[1], (int(match[2]) + 1) // 2] = match[3]
        elif match := LEFT.search(line):
            left.append(match[1])
    return served, left


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def ranges(served):
    """Neighbouring size classes with one algorithm, as (collective, first size, end, algorithm)."""
    merged = []
    for (collective, size), algorithm in sorted(served.items()):
        last = merged[-1] if merged else None
        if last and last[0] == collective and last[2] == size and last[3] == algorithm:
            last[2] = size * 2
        else:
            merged.append([collective, size, size * 2, algorithm])
    return merged


def same(host, heddle, ranks):
    """Two summands have one sum; more may be added in another order, which training then magnifies."""
    if ranks <= 2:
        return host == heddle
    loss = abs(host["loss"] - heddle["loss"]) <= 0.0005 + 0.02 * abs(host["loss"])
    return loss and abs(host["accuracy"] - heddle["accuracy"]) <= 0.0085


def main():
    folder = pathlib.Path(sys.argv[1])
    host, heddle = read_results(folder, "host"), read_results(folder, "heddle")
    ranks = int(re.search(r"ranks (\d+)", (folder / "host.1.out").read_text())[1])

    for result in host + heddle:
        result["other_seconds"] = result["seconds"] - result["collective_seconds"]

    def median(results, key):
        """Times all of one run, that in the middle by its time in all (of two the shorter): so the parts add up."""
        if "seconds" in key:
            return sorted(results, key=lambda result: result["seconds"])[(len(results) - 1) // 2][key]
        return statistics.median(result[key] for result in results)

    print()
    print(f"  {'median of ' + str(len(host)):<24}{'host MPI':>12}{'heddle':>12}{'ratio':>9}")
    for key, label, digits in (("loss", "loss", 4), ("accuracy", "accuracy", 4),
                               ("collective_seconds", "seconds in collectives", 3), ("other_seconds", "seconds elsewhere", 3),
                               ("seconds", "seconds in all", 3)):
        a, b = median(host, key), median(heddle, key)
        ratio = f"{a / b:.2f}x" if "seconds" in key and b > 0 else ""
        print(f"  {label:<24}{a:>12.{digits}f}{b:>12.{digits}f}{ratio:>9}")
    print()

    served, left = read_decisions(folder)
    for collective, first, end, algorithm in ranges(served):
        print(f"  {collective:<10} {size_text(first):>8} up to {size_text(end):<8}  {algorithm}")
    for reason in dict.fromkeys(left):
        print(f"  {reason}")

    numbers = ("loss", "accuracy")
    first = {key: host[0][key] for key in numbers}
    results = [{key: result[key] for key in numbers} for result in host + heddle]
    equal = all(same(first, result, ranks) for result in results)
    print()
    if not served:
        lines = (folder / "heddle.1.err").read_text(encoding="utf-8", errors="replace").splitlines()
        print(*lines[-5:], "heddle served no collective: the lines above, or HEDDLE_LOG=info, say why", sep="\n", file=sys.stderr)
        return 1
    if not equal:
        print(f"loss or accuracy differ between the runs: {results}", file=sys.stderr)
        return 1
    exact = all(result == first for result in results)
    print("Same loss and accuracy from both." if exact else
          "Same loss and accuracy from both, but for the order in which the host MPI adds.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
