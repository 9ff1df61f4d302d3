#!/usr/bin/env python3
"""Shows what a benchmark wrote with --json: as a Markdown table on standard output, or with --plot as a picture (needs matplotlib).

It reads what these wrote: benchmarks with --vs mpi or --vs staged; and, as tables only, those that measured one side alone, heddle_sparse_allreduce and osu_style_bench/over_hosts.py. Where two sides were compared rows have medians, the ratio
(above 1: heddle is faster) and its 95% interval, which is of that launch: others differ by more, and --launches takes several together; of over_hosts.py with fewer than six turns the range of the turns' ratios.

    heddle-show-results result.json

    heddle-show-results --plot all.png allreduce.json bcast.json

    heddle-show-results --launches run1.json run2.json run3.json run4.json run5.json run6.json

It is installed under that name; in the repository it is tools/show_results.py.
"""
import argparse
import json
import math
import pathlib
import random
import signal
import statistics
import sys
import textwrap

PROGRAM = pathlib.Path(sys.argv[0]).name
VERSION = "0.1.0"  # as in heddle.h
BOOTSTRAPS = 2000
LEAST_TURNS = 6  # for an interval of 95%
SCHEMA = 1  # the latest that is known here; files of before say none
OF_LAUNCHERS = ("OMPI_MCA_orte_", "OMPI_MCA_ess_", "OMPI_MCA_pmix_", "OMPI_MCA_initial_wdir", "OMPI_MCA_shmem_", "OMPI_MCA_mca_base_")
# Of Okabe and Ito: told apart whatever colours one sees, and so are their shapes.
OTHER_LOOKS = {"color": "#D55E00", "marker": "s"}
HEDDLE_LOOKS = {"color": "#0072B2", "marker": "o"}


# A rank that is interrupted so often waits for its core, and the benchmarks say so (osu_style_bench/common/placement.cpp).
INTERRUPTIONS = {"most": 10, "per_second": 25}


def times(us):
    """Three digits that say something, or all of a whole number."""
    decimals = max(0, 2 - math.floor(math.log10(us))) if us > 0 else 0
    return f"{us:,.{decimals}f}"


def count(number, one, several=None):
    return f"{number} {one if number == 1 else several or one + 's'}"


def other(result):
    """What heddle was compared with."""
    return "staged" if result["settings"].get("versus") == "staged" else "MPI"


def host_serves(result):
    """Whether the preload library was there, but left the calls to the host MPI."""
    return "the host MPI serves this" in result.get("mode", "")


def measured(result):
    """What the benchmark calls the side that is compared: no times of the host MPI's are heddle's."""
    return "preload" if host_serves(result) else "heddle"


def compared(result):
    return "geometric_mean_ratio" in result


def job(result):
    """What was measured."""
    settings, hosts = result["settings"], result.get("hosts")
    kinds = [text for name, text in (("in_place", "in place"), ("warm_buffers", "warm buffers"), ("alloc_mem", "alloc-mem")) if settings.get(name)]
    kinds += ["root 0"] * (settings.get("root") == "fixed" and compared(result))
    ranks = count(result["ranks"], "rank") + (f" on {count(hosts, 'host')}" if hosts else "")
    dtype = None if settings.get("max_bytes") == 0 else settings.get("dtype")  # a barrier has none
    return ", ".join(filter(None, [result["program"], ranks, dtype, *kinds]))


def libraries(result):
    """Who was measured. Of buffers on a GPU the mode names it."""
    return ", ".join(filter(None, [result.get("mode"), result.get("mpi_library", "").replace(" Version: ", " ")]))


def built(result):
    build = result.get("build", {})
    return "build " + " ".join(build[key] for key in ("source", "type") if key in build) if build else None


def when(result):
    return result["date"].replace("T", " ").replace("Z", " UTC") if "date" in result else None


def caption(*parts):
    return "; ".join(filter(None, parts))


def warnings(result):
    """What takes their meaning from the figures; most of it the benchmark said on standard error."""
    texts = []
    if host_serves(result) and compared(result):
        texts.append("both sides are the host MPI, since the preload library left these calls to it")
    noise = result.get("interruptions") or {}
    often = all(noise.get(key, 0) >= least for key, least in INTERRUPTIONS.items())
    interrupted = f"a rank was interrupted {noise['most']} times, {noise['per_second']:.0f} times a second" if often else None
    if why := result.get("lack_of_cores") or interrupted:
        texts.append(f"{why}; times are those of waiting for a core as well")
    if wrong := [f"{row['bytes']} bytes" if "bytes" in row else f"{row['density_percent']:g}%" for row in result["rows"] if row.get("valid") is False]:
        texts.append(f"results were wrong at {', '.join(wrong)}")
    return texts


def print_head(result, text):
    print(text + "\n")
    for warning in warnings(result):
        print(f"**Warning:** {warning}.\n")


def print_table(result):
    print_head(result, caption(job(result), libraries(result), built(result), when(result)))
    print(f"| bytes | {other(result)}, us | {measured(result)}, us | ratio | 95% interval | algorithm |")
    print("|---:|---:|---:|---:|---|---|")
    for row in result["rows"]:
        low, high = row["ratio_ci95"]
        print(f"| {row['bytes']} | {times(row['host']['median_us'])} | {times(row['heddle']['median_us'])} "
              f"| {row['ratio']:.2f} | {low:.2f} to {high:.2f} | {row['algorithm']} |")
    low, high = result["geometric_mean_ratio_ci95"]
    print(f"\nGeometric mean of the ratios {result['geometric_mean_ratio']:.2f} (95% interval of this run {low:.2f} to {high:.2f}).\n")


# Of benchmarks that compare nothing: key in a row, heading.
PLAIN = (("average_us", "average, us"), ("minimum_us", "minimum, us"), ("maximum_us", "maximum, us"), ("average_mb_per_s", "average, MB/s"),
         ("minimum_mb_per_s", "minimum, MB/s"), ("maximum_mb_per_s", "maximum, MB/s"), ("overall_us", "overall, us"), ("compute_us", "compute, us"),
         ("pure_us", "pure, us"), ("overlap_percent", "overlap, %"), ("iterations", "iterations"), ("rounds", "rounds"), ("algorithm", "algorithm"))


def plain_cell(key, value):
    if value is None:
        return "-"
    if key in ("iterations", "rounds", "algorithm"):
        return str(value)
    return f"{value:.2f}" if key == "overlap_percent" else times(value)


def print_plain(result):
    """A benchmark without --vs: what it prints with --full; of non-blocking collectives medians, and overlap."""
    print_head(result, caption(job(result), libraries(result), built(result), when(result)))
    columns = [(key, name) for key, name in PLAIN if any(row.get(key, "-") != "-" for row in result["rows"])]
    print("| bytes | " + " | ".join(name for _, name in columns) + " |\n|" + "---:|" * (len(columns) + 1))
    for row in result["rows"]:
        print(f"| {row['bytes']} | " + " | ".join(plain_cell(key, row.get(key)) for key, _ in columns) + " |")
    for row in result["rows"]:
        if "no_overlap_because" in row:
            print(f"\n{row['bytes']} bytes: no overlap is shown, since {row['no_overlap_because']}.")
    print()


def ratio(value):
    low, high = value["ratio_ci95"]
    return f"{value['ratio']:.2f} | {low:.2f} to {high:.2f}"


def print_sparse(result):
    """heddle_sparse_allreduce: a row for each density."""
    settings, wire, host = result["settings"], result["wire_bytes_per_second"], result["settings"]["mpi"]
    vectors = f"dimension {settings['dimension']:,}, {settings['pattern']}, {settings['api']}"
    print_head(result, caption(job(result), vectors, wire and f"wire {wire / 1e6:,.0f} MB/s", libraries(result), built(result), when(result)))
    columns = ["density, %", "entries", "result", "overlap", "sparse, us", "dense, us", *["MPI, us"] * host,
               "dense/sparse", "95% interval", *["MPI/sparse", "95% interval"] * host, "bytes sent", "of pairs", "of wire", "algorithm"]
    print("| " + " | ".join(columns) + " |\n|" + "---:|" * (len(columns) - 1) + "---|")
    for row in result["rows"]:
        sent, share = row["bytes_sent"], row["wire_share"]
        cells = [f"{row['density_percent']:g}", f"{row['entries']:,}", f"{row['result_entries']:,}", f"{row['overlap']:.3f}"]
        cells += [times(row[side]["median_us"]) for side in ("sparse", "dense", *["host"] * host)]
        cells += [ratio(row[over]) for over in ("dense_over_sparse", *["host_over_sparse"] * host)]
        cells += [f"{sent:,.0f}" if sent else "-", f"{sent / row['pair_bytes']:.2f}" if sent else "-",
                  f"{share:.2f}" if share else "-", row["algorithm"]]
        print("| " + " | ".join(cells) + " |")
    print()


def interval(theirs, ours):
    """Of the ratio of medians, 95%."""
    draw = random.Random(1)
    ratios = sorted(statistics.median(draw.choices(theirs, k=len(theirs))) / statistics.median(draw.choices(ours, k=len(ours)))
                    for _ in range(BOOTSTRAPS))
    return ratios[BOOTSTRAPS // 40], ratios[-BOOTSTRAPS // 40]


def spread(theirs, ours):
    """Of the ratio: its interval, or as far as the turns' ratios go."""
    if len(ours) < 2:
        return "-"
    ratios = [a / b for a, b in zip(theirs, ours)]
    low, high = interval(theirs, ours) if len(ours) >= LEAST_TURNS else (min(ratios), max(ratios))
    return f"{low:.2f} to {high:.2f}"


def print_mean(ratios, turns):
    print(f"\nGeometric mean of the ratios {math.exp(statistics.mean(map(math.log, ratios))):.2f}, the lowest {min(ratios):.3f}; {count(turns, 'turn')}.")


def print_turns(peer, samples):
    """`samples`: for "peer" and "heddle", and for each of the peer's further settings, a list of turns, each {bytes: microseconds}."""
    turns = len(samples["heddle"])
    name = "95% interval" if turns >= LEAST_TURNS else "range"
    print(f"| bytes | {peer}, us | heddle, us | ratio | {name} |\n|---:|---:|---:|---:|---|")
    ratios = []
    for size in sorted(samples["heddle"][0]):
        theirs, ours = ([turn[size] for turn in samples[side]] for side in ("peer", "heddle"))
        a, b = statistics.median(theirs), statistics.median(ours)
        ratios.append(a / b)
        print(f"| {size} | {a:,.1f} | {b:,.1f} | {a / b:.2f} | {spread(theirs, ours)} |")
    print_mean(ratios, turns)
    if len(samples) > 2:
        print_tuned(peer, samples, name)


def print_tuned(peer, samples, name):
    """Beside the fastest of the peer's settings at each size, its own choice among them. It is picked by these samples, which favours the peer a little."""
    tuned = [side for side in samples if side not in ("peer", "heddle")]
    print(f"\nBeside the best of {peer}'s settings at each size, of\n")
    for number, side in enumerate(["as it comes", *tuned]):
        print(f"{number}. {side}")
    print(f"\n| bytes | best | {peer}, us | heddle, us | ratio | {name} |\n|---:|---:|---:|---:|---:|---|")
    ratios = []
    for size in sorted(samples["heddle"][0]):
        runs = [[turn[size] for turn in samples[side]] for side in ["peer", *tuned]]
        best = min(range(len(runs)), key=lambda k: statistics.median(runs[k]))
        ours = [turn[size] for turn in samples["heddle"]]
        a, b = statistics.median(runs[best]), statistics.median(ours)
        ratios.append(a / b)
        print(f"| {size} | {best} | {a:,.1f} | {b:,.1f} | {a / b:.2f} | {spread(runs[best], ours)} |")
    print_mean(ratios, len(samples["heddle"]))


def print_over_hosts(result):
    """osu_style_bench/over_hosts.py: its own table, from its samples."""
    settings = result["settings"]
    rate = "links not shaped" if settings["rate"] == "none" else f"links of {settings['rate']}"
    hosts = f"{count(settings['hosts'], 'host')} of {count(settings['ranks_per_host'], 'rank')}"
    source = result.get("heddle_source")
    print(caption(f"over_hosts.py, {settings['collective']}, {hosts}, {rate}, heddle under {result.get('under_version') or settings.get('under', 'mpich')}",
                  result.get("peer_version"), source and f"build {source}", when(result)) + "\n")
    of_side = {"peer": result["peer"], **result.get("tuned", {}), "heddle": result["heddle"]}
    print_turns(settings["peer"], {side: [{int(size): us for size, us in turn.items()} for turn in turns] for side, turns in of_side.items()})
    print()


def order_interval(values):
    """Of the median, 95%, from order statistics, as the benchmarks have it (stats.hpp): of any distribution; None of fewer values than six."""
    n, k, outside = len(values), 0, 0.0
    for i in range(n // 2):
        outside += math.comb(n, i) / 2 ** n
        if outside > 0.025:
            break
        k = i + 1
    ordered = sorted(values)
    return (ordered[k - 1], ordered[n - k]) if k else None


def of_launches(values):
    """The cells of a ratio over launches: its median, and the interval or, of too few, the range."""
    low, high = order_interval(values) or (min(values), max(values))
    return f"{statistics.median(values):.2f} | " + (f"{low:.2f} to {high:.2f}" if len(values) > 1 else "-")


def of_the_launch(name):
    """Whether a variable is told each launch anew, by a batch system or Open MPI's mpiexec: no setting."""
    return name == "HEDDLE_JOB_ID" or name.startswith(OF_LAUNCHERS)


def command_of(result):
    """What launches of one command have in common: {name: value}."""
    values = {key: result.get(key) for key in ("program", "mode", "ranks", "hosts", "mpi_library", "heddle_version", "build")}
    values["cpu"] = result.get("machine", {}).get("cpu")
    # How much memory was free is no setting.
    values |= {name: value for name, value in result["settings"].items() if name != "memory_allowed_bytes"}
    values |= {name: value for name, value in result.get("environment", {}).items() if not of_the_launch(name)}
    values["sizes"] = [row["bytes"] for row in result["rows"]]
    return values


def as_text(value):
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)


def difference(paths, results):
    """What the launches do not have in common and must, in words; empty where all are of one command."""
    commands = [command_of(result) for result in results]
    for path, command in zip(paths, commands):
        for name in {**commands[0], **command}:
            values = commands[0].get(name), command.get(name)
            if values[0] != values[1]:
                return f"{name} is {as_text(values[0])} in {paths[0]}, and {as_text(values[1])} in {path}"
    return ""


def print_launches(paths, results):
    """A launch is the unit: where its processes and pages came to lie is the same for all of its rounds, and so in none of its intervals."""
    first = results[0]
    name = "95% interval" if len(results) >= LEAST_TURNS else "range"
    launches = count(len(results), "launch", "launches")
    print(caption(job(first), libraries(first), built(first), launches) + "\n")
    for path, result in zip(paths, results):
        for warning in warnings(result):
            print(f"**Warning:** {path}: {warning}.\n")
    print(f"| bytes | {other(first)}, us | {measured(first)}, us | ratio | {name} |\n|---:|---:|---:|---:|---|")
    for rows in zip(*(result["rows"] for result in results)):
        cells = [times(statistics.median(row[side]["median_us"] for row in rows)) for side in ("host", "heddle")]
        print(f"| {rows[0]['bytes']} | {cells[0]} | {cells[1]} | {of_launches([row['ratio'] for row in rows])} |")
    median, _, limits = of_launches([result["geometric_mean_ratio"] for result in results]).partition(" | ")
    over = f" ({name} {limits}), medians over {launches}" if len(results) > 1 else ", of 1 launch"
    print(f"\nGeometric mean of the ratios {median}{over}.\n")


def cliffs(rows, side):
    """For each size but the ends: (time as a multiple of what lies on the line between its neighbours, bytes of these and of itself)."""
    for before, here, after in zip(rows, rows[1:], rows[2:]):
        share = (here["bytes"] - before["bytes"]) / (after["bytes"] - before["bytes"])
        first, last = before[side]["median_us"], after[side]["median_us"]
        yield here[side]["median_us"] / (first + share * (last - first)), before["bytes"], here["bytes"], after["bytes"]


def print_cliffs(result):
    """No size should take much longer than its neighbours let expect: where one does, a switch comes too early or too late."""
    if len(result["rows"]) < 3:
        return
    for side, name in (("heddle", measured(result)), ("host", other(result))):
        worst, before, size, after = max(cliffs(result["rows"], side))
        print(f"{name}: {size} bytes stand out most: they take {worst:.2f} times as long as a straight line from {before} to {after} bytes would have it.")
    print()


def size_label(size):
    for unit, name in ((1 << 20, "Mi"), (1 << 10, "Ki")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return str(size)


def size_scale(sizes):
    """A logarithm has no place for a size of 0: up to the next one the axis is straight."""
    return {"value": "symlog", "linthresh": min(filter(None, sizes), default=1)} if 0 in sizes else {"value": "log"}


def marks(low, high):
    """Readable places on a logarithmic axis from low to high: 0.5, 1, 2, 5, 10, powers of ten where it is long, equal steps where it is short."""
    powers = [10.0 ** power for power in range(-6, 10)]
    digits = [digit * power for power in powers for digit in (1, 2, 5)]
    if high / low < 10:
        step = next(digit for digit in digits if (high - low) / digit <= 6)
        return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return [mark for mark in (digits if high / low < 1000 else powers) if low <= mark <= high]


def use_log_axis(axes, low, high):
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.set_yticks(marks(low, high), [f"{mark:,.9g}" for mark in marks(low, high)])
    axes.minorticks_off()
    axes.grid(alpha=0.3)


def title(result):
    lines = [job(result).removeprefix("heddle_"), libraries(result), result.get("machine", {}).get("cpu"), *(f"Warning: {text}" for text in warnings(result))]
    return "\n".join(textwrap.fill(line, 60) for line in lines if line)


def plot_times(axes, result):
    sizes = [row["bytes"] for row in result["rows"]]
    medians = {side: [row[side]["median_us"] for row in result["rows"]] for side in ("host", "heddle")}
    for side, name, looks in (("host", other(result), OTHER_LOOKS), ("heddle", measured(result), HEDDLE_LOOKS)):
        axes.plot(sizes, medians[side], ms=3, label=name, **looks)
    axes.set(ylabel="microseconds (median)")
    use_log_axis(axes, min(map(min, medians.values())) / 1.3, max(map(max, medians.values())) * 1.3)
    axes.set_title(title(result), fontsize=9)
    axes.legend()


def plot_ratios(axes, result):
    sizes = [row["bytes"] for row in result["rows"]]
    lows, highs = zip(*(row["ratio_ci95"] for row in result["rows"]))
    axes.vlines(sizes, lows, highs, color=HEDDLE_LOOKS["color"], alpha=0.35, lw=4, label="95% interval of this run")
    axes.plot(sizes, [row["ratio"] for row in result["rows"]], ms=3, **HEDDLE_LOOKS)
    axes.axhline(1, color="black", lw=0.8)
    axes.set(xlabel="bytes", ylabel=f"{other(result)} / {measured(result)}")
    axes.set_title(f"above 1: {measured(result)} is faster", fontsize=9, loc="left")
    axes.legend(fontsize=8, loc="lower right", bbox_to_anchor=(1.02, 0.98), frameon=False)
    use_log_axis(axes, min(0.8, *lows) / 1.1, max(1.25, *highs) * 1.1)
    axes.set_xscale(**size_scale(sizes))
    ticks = sizes[:: max(1, len(sizes) // 6)]
    axes.set_xticks(ticks, [size_label(s) for s in ticks], rotation=30)
    axes.minorticks_off()


def plot(results, path):
    try:
        import matplotlib
    except ImportError:
        sys.exit(f"{PROGRAM}: --plot needs matplotlib, which this Python does not have; without --plot there are tables")
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(2, len(results), figsize=(5 * len(results), 7), sharex="col", squeeze=False,
                                   gridspec_kw={"height_ratios": (2, 1)})
    for column, result in enumerate(results):
        plot_times(axes[0, column], result)
        plot_ratios(axes[1, column], result)
    figure.tight_layout()
    try:
        figure.savefig(path, dpi=90)
    except (OSError, ValueError) as problem:
        sys.exit(f"{PROGRAM}: --plot {path}: {problem}")


def read(path):
    """What a benchmark or over_hosts.py wrote; ValueError where none did."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as problem:
        raise ValueError(f"not what heddle's benchmarks write with --json, or not all of it: line {problem.lineno}, column {problem.colno}: {problem.msg}") from problem
    except UnicodeDecodeError as problem:
        raise ValueError(f"not what heddle's benchmarks write with --json: byte {problem.start} is no UTF-8") from problem
    except OSError as problem:
        raise ValueError(problem.strerror) from problem
    if isinstance(result, dict) and ("program" in result and "rows" in result or is_over_hosts(result)):
        check_schema(result)
        return result
    if isinstance(result, dict) and "folds" in result:
        raise ValueError("tests/gpu/run wrote it, which shows its tables itself; docs/gpu.md has those of the documentation")
    if isinstance(result, dict) and "what" in result:
        raise ValueError(f"put together by hand, and read as it is: {result['what']}")
    if isinstance(result, dict) and "rows" in result and "program" not in result:
        raise ValueError("no benchmark wrote it, but a simulation perhaps: tests/scale/show.py shows those of tests/scale/run")
    raise ValueError("no benchmark wrote it with --json")


def check_schema(result):
    """ValueError of a file that would be misread here."""
    schema = result.get("schema", 0)
    if not isinstance(schema, int) or schema > SCHEMA:
        writer = f"heddle {result['heddle_version']}" if "heddle_version" in result else "a later heddle"
        source = result.get("heddle_source") or result.get("build", {}).get("source")
        raise ValueError(f"{writer}{f' ({source})' if source else ''} wrote it with schema {schema}, and here files are known up to schema {SCHEMA}: "
                         "show it with heddle-show-results of that version or a later one")


def is_over_hosts(result):
    return all(isinstance(result.get(side), list) and result[side] for side in ("peer", "heddle")) and "settings" in result


class Help(argparse.RawDescriptionHelpFormatter):
    """With a capital letter, as the other programs print it, and as what makes manual pages expects."""

    def add_usage(self, usage, actions, groups, prefix="Usage: "):
        super().add_usage(usage, actions, groups, prefix)


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # who reads the tables may have seen enough
    # In one line, as help2man takes it.
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=Help, usage="%(prog)s [-h] [-v] [--plot PICTURE | --launches] FILE.json ...")
    parser.add_argument("-v", "--version", action="version", version=f"{PROGRAM} {VERSION}")
    parser.add_argument("results", nargs="+", type=pathlib.Path, metavar="FILE.json", help="what a benchmark, or over_hosts.py, wrote with --json")
    pictures = parser.add_mutually_exclusive_group()
    pictures.add_argument("--plot", metavar="PICTURE", help="draw times and ratios of all FILEs into this file, and print no table")
    pictures.add_argument("--launches", action="store_true",
                          help="the FILEs are launches of one command: print medians over them; from six on there are 95%% intervals")
    args = parser.parse_args()
    results = []
    for path in args.results:
        try:
            result = read(path)
        except ValueError as problem:
            parser.error(f"{path}: {problem}")
        results.append(result)
        tables = "dimension" in result.get("settings", {}) or is_over_hosts(result)
        if tables and args.plot:
            parser.error(f"{path}: results of {result.get('program', 'over_hosts.py')} are shown as tables only, without --plot")
        if args.plot and not compared(result):
            parser.error(f"{path}: --plot draws two sides, and this is of one; write it with --vs mpi, or leave --plot out for a table")
    if args.launches:
        if not all(map(compared, results)):
            parser.error("--launches: takes results of --vs mpi or --vs staged alone")
        if text := difference(args.results, results):
            parser.error(f"--launches: these are not of one command: {text}")
        for number, result in enumerate(results):
            if (before := results.index(result)) < number:
                parser.error(f"--launches: {args.results[before]} and {args.results[number]} are the same launch")
        print_launches(args.results, results)
        return
    if args.plot:
        plot(results, args.plot)
        return
    for result in results:
        if is_over_hosts(result):
            print_over_hosts(result)
            continue
        if "dimension" in result["settings"]:
            print_sparse(result)
            continue
        if not compared(result):
            print_plain(result)
            continue
        print_table(result)
        print_cliffs(result)


if __name__ == "__main__":
    main()
