#!/usr/bin/env python3
"""Tables (standard output) and plots of what tests/scale/run left in FOLDER.

    show.py FOLDER
"""
import itertools
import json
import math
import pathlib
import sys

# Of Okabe and Ito, told apart whatever colours one sees, and so are the shapes.
LOOKS = [{"color": color, "marker": marker} for color, marker in (("#0072B2", "o"), ("#E69F00", "s"), ("#009E73", "^"), ("#CC79A7", "D"))]


def size(n):
    return f"{n / (1 << 20):g} Mi" if n >= 1 << 20 else f"{n / (1 << 10):g} Ki" if n >= 1 << 10 else f"{n} B"


def us(t):
    return f"{t:.2f}" if t < 100 else f"{t:,.0f}"


def groups(rows):
    found = {}
    for row in rows:
        found.setdefault((row["collective"], row["platform"], row["ranks"]), []).append(row)
    return dict(sorted(found.items()))


def best(row):
    return min(row["host_us"].items(), key=lambda item: item[1])


def table(rows):
    print("| collective | platform | ranks | bytes | heddle, us | algorithm | best selector | its us | ratio | results |")
    print("|---|---|---:|---:|---:|---|---|---:|---:|---|")
    for (collective, platform, ranks), some in groups(rows).items():
        ratios = []
        for row in sorted(some, key=lambda r: r["bytes"]):
            name, theirs = best(row)
            ratios.append(theirs / row["heddle_us"])
            print(f"| {collective} | {platform} | {ranks} | {size(row['bytes'])} | {us(row['heddle_us'])} | {row['algorithm']} "
                  f"| {name} | {us(theirs)} | {ratios[-1]:.2f} | {row['results']} |")
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"| {collective} | {platform} | {ranks} | geometric mean | | | | | {mean:.2f} | |")


def priced(rows):
    print("\n| collective | bytes | algorithm | price, us | simulated, us | price / simulated |")
    print("|---|---:|---|---:|---:|---:|")
    for row in rows:
        print(f"| {row['collective']} | {size(row['bytes'])} | {row['algorithm']} | {us(row['price_us'])} | {us(row['heddle_us'])} "
              f"| {row['price_us'] / row['heddle_us']:.2f} |")


def against(lines):
    """How many times as long choices take as the best candidate, when all ranks are run."""
    rows = {}
    for _, machine, collective, nbytes, ratio, *_ in map(str.split, lines):
        rows.setdefault(machine, {})[(collective, int(nbytes))] = float(ratio)
    heads = list(next(iter(rows.values())))
    named = [f"{collective} {size(nbytes)}" if nbytes == heads[0][1] else size(nbytes) for collective, nbytes in heads]
    print("\n| nodes x ranks | placed | " + " | ".join(named) + " |")
    print("|---|---|" + "---|" * len(heads))
    for machine, found in rows.items():
        print(f"| {machine.rstrip('t').replace('x', ' x ')} | {'in turn' if machine.endswith('t') else 'blocks'} | "
              + " | ".join(f"{found[head]:.2f}" for head in heads) + " |")
    ratios = [ratio for found in rows.values() for ratio in found.values()]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"{len(ratios)} choices: {mean:.3f} in the geometric mean, {max(ratios):.2f} at most")


def prices(lines):
    """What the estimate at scale makes of a choice: the price, were all ranks run, of what it chooses over the cheapest."""
    found = {}
    for words in map(str.split, lines):
        found.setdefault((int(words[1]), words[2], int(words[3])), []).append((float(words[8]), float(words[7]), words[4]))
    errors = sorted(abs(e / x - 1) for some in found.values() for e, x, _ in some)
    print(f"\n{len(errors)} prices at {sorted({k[0] for k in found})} ranks: off by {errors[len(errors) // 2]:.1%} (median), "
          f"{errors[len(errors) * 9 // 10]:.0%} (nine tenths), {errors[-1]:.0%} (most)")
    for key, some in found.items():
        chosen, cheapest = min(some), min(some, key=lambda c: c[1])
        if chosen[1] > 1.001 * cheapest[1]:
            print(f"{key}: {chosen[2]} instead of {cheapest[2]} costs {chosen[1] / cheapest[1] - 1:.1%}")


def plot(rows, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    found = groups(rows)
    platforms = sorted({p for _, p, _ in found})
    looks = dict(zip(sorted({ranks for _, _, ranks in found}), itertools.cycle(LOOKS)))
    figure, axes = pyplot.subplots(2, len(platforms), figsize=(5 * len(platforms), 7), sharey=True, squeeze=False)
    for line, collective in enumerate(("allreduce", "bcast")):
        for column, platform in enumerate(platforms):
            axis = axes[line][column]
            for (c, p, ranks), some in found.items():
                if (c, p) != (collective, platform):
                    continue
                some = sorted(some, key=lambda r: r["bytes"])
                axis.plot([r["bytes"] for r in some], [best(r)[1] / r["heddle_us"] for r in some], ms=4, label=f"{ranks} ranks", **looks[ranks])
            axis.axhline(1, color="black", lw=0.8)
            axis.set(xscale="log", title=f"{collective}, {platform.replace('_', ' ')}", xlabel="bytes",
                     ylabel="best selector / heddle\n(above 1: heddle is faster)" if column == 0 else "")
            axis.set_ylim(0, 1.1 * max(best(r)[1] / r["heddle_us"] for r in rows))
            axis.grid(alpha=0.3)
            axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def main():
    folder = pathlib.Path(sys.argv[1])
    rows = json.loads((folder / "collectives.json").read_text())["rows"]
    table(rows)
    priced(json.loads((folder / "priced.json").read_text())["rows"])
    against((folder / "against.txt").read_text().splitlines())
    prices((folder / "prices.txt").read_text().splitlines())
    plot(rows, folder / "ratios.png")


if __name__ == "__main__":
    main()
