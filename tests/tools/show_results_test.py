"""tools/show_results.py says in a line what is wrong with what it is given."""
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

SHOW = sys.argv.pop(1)
RESULTS = sys.argv.pop(1)
sys.path.insert(0, str(pathlib.Path(SHOW).resolve().parent))
import show_results  # noqa: E402

DOCUMENTED = pathlib.Path(RESULTS).parent.parent


def show(*arguments):
    return subprocess.run([sys.executable, SHOW, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          encoding="utf-8", timeout=60, check=False)


class ShowResults(unittest.TestCase):
    def test_results_are_a_table(self):
        shown = show(RESULTS)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn("|---", shown.stdout)

    def test_a_table_says_what_it_is_of(self):
        """Of whom, with which settings, built from what and when; figures of one column have as many digits that say something."""
        one = json.loads(pathlib.Path(RESULTS).read_text(encoding="utf-8"))
        one |= {"hosts": 1, "mode": "heddle 0.1.0 native", "build": {"source": "abcdef0", "type": "release"}, "date": "2026-11-27T17:53:52Z"}
        one["settings"]["in_place"] = True
        one["rows"] = one["rows"][:4]
        for row, us in zip(one["rows"], (0.13, 1.1, 26, 1234.5)):
            row["host"]["median_us"] = us
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "one.json")
            path.write_text(json.dumps(one), encoding="utf-8")
            shown = show(path, path).stdout
            self.assertEqual(shown.count("heddle_allreduce, 2 ranks on 1 host, MPI_FLOAT, in place; heddle 0.1.0 native, MPICH 4.0.2; build abcdef0 release; "
                                         "2026-11-27 17:53:52 UTC\n\n| bytes | MPI, us | heddle, us |"), 2, shown)
            self.assertIn("\n\nheddle_allreduce", shown)  # else Markdown joins it to the table before
            for number, text in enumerate(("0.130", "1.10", "26.0", "1,234")):
                self.assertIn(f"| {one['rows'][number]['bytes']} | {text} |", shown)
            self.assertIn("\nMPI: 8 bytes stand out most: they take 0.13 times as long as a straight line from 4 to 16 bytes would have it.\n\n", shown)
            alone = show("--launches", path).stdout
            self.assertIn("; 1 launch\n", alone)
            self.assertRegex(alone, r"Geometric mean of the ratios [\d.]+, of 1 launch\.")
            self.assertEqual(alone.count(" | - |\n"), 4, alone)

    def test_what_takes_the_meaning_from_figures_is_said(self):
        """Times of the host MPI under the preload library are nobody else's; ranks without cores, and wrong results."""
        one = json.loads(pathlib.Path(RESULTS).read_text(encoding="utf-8"))
        waits = "times are those of waiting for a core as well.\n\n"
        cases = (({"mode": "heddle 0.1.0 preloaded, but the host MPI serves this"}, "both sides are the host MPI, since the preload library left these calls to it.\n\n"),
                 ({"lack_of_cores": "2 ranks on vm share 1 core"}, f"2 ranks on vm share 1 core; {waits}"),
                 ({"interruptions": {"most": 313, "per_second": 89.8}}, f"a rank was interrupted 313 times, 90 times a second; {waits}"),
                 ({"rows": [{**row, "valid": row["bytes"] not in (8, 32)} for row in one["rows"]]}, "results were wrong at 8 bytes, 32 bytes.\n\n"))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "one.json")
            for changes, said in cases:
                path.write_text(json.dumps({**one, **changes}), encoding="utf-8")
                shown = show(path).stdout
                self.assertIn(f"**Warning:** {said}", shown)
                self.assertEqual(shown.count("Warning"), 1, shown)
                self.assertIn("| MPI, us | preload, us |" if "mode" in changes else "| MPI, us | heddle, us |", shown)
                self.assertIn(f"**Warning:** {path}: {said}", show("--launches", path).stdout)
            path.write_text(json.dumps({**one, "interruptions": {"most": 9, "per_second": 50}}), encoding="utf-8")
            self.assertNotIn("Warning", show(path).stdout + show(RESULTS).stdout)

    def test_who_reads_may_stop(self):
        """As head does: no word about it."""
        reader, writer = os.pipe()
        os.close(reader)
        shown = subprocess.run([sys.executable, SHOW, RESULTS], stdout=writer, stderr=subprocess.PIPE, encoding="utf-8", timeout=60, check=False)
        os.close(writer)
        self.assertEqual((shown.returncode, shown.stderr), (-signal.SIGPIPE, ""))

    def test_version_is_the_librarys(self):
        header = (DOCUMENTED.parent.parent / "include" / "heddle" / "heddle.h").read_text(encoding="utf-8")
        for option in ("-v", "--version"):
            self.assertIn(f'#define HEDDLE_VERSION_STRING "{show(option).stdout.split()[-1]}"\n', header)

    def test_all_results_are_shown_or_named(self):
        """Each file of the documentation: as a table, or what it is is said."""
        for path in sorted(DOCUMENTED.rglob("*.json")):
            shown = show(path)
            self.assertNotIn("Traceback", shown.stderr, path)
            if path.parent.name == "hosts":
                self.assertEqual(shown.returncode, 0, shown.stderr)
                self.assertIn("| ratio |", shown.stdout)
            if shown.returncode != 0:
                self.assertRegex(shown.stderr.splitlines()[-1], "put together by hand.*peer_loop.c|tests/scale/show.py|tests/gpu/run wrote it", path)

    def test_launches_are_put_together(self):
        """Their medians, with the interval of the median of six values: all of them."""
        one = json.loads(pathlib.Path(RESULTS).read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for number, factor in enumerate((1.0, 1.1, 0.9, 1.3, 1.2, 0.8)):
                for row in one["rows"]:
                    row["ratio"] = 2 * factor
                one["geometric_mean_ratio"] = 2 * factor
                one["settings"]["memory_allowed_bytes"] = number
                paths.append(pathlib.Path(folder, f"{number}.json"))
                paths[-1].write_text(json.dumps(one), encoding="utf-8")
            shown = show("--launches", *paths).stdout
            self.assertEqual(shown.count("| 2.10 | 1.60 to 2.60 |"), len(one["rows"]), shown)
            self.assertIn("Geometric mean of the ratios 2.10 (95% interval 1.60 to 2.60), medians over 6 launches.", shown)
            few = show("--launches", *paths[:3]).stdout
            self.assertIn("| ratio | range |", few)
            self.assertIn("| 2.00 | 1.80 to 2.20 |", few)

    def test_launches_of_other_commands_are_refused(self):
        """What differs is named, and both values."""
        def changed(**changes):
            return {**json.loads(pathlib.Path(RESULTS).read_text(encoding="utf-8")), "environment": {"HEDDLE_SPIN": "30"}, **changes}
        settings = changed()["settings"]
        with tempfile.TemporaryDirectory() as folder:
            one, two = pathlib.Path(folder, "one.json"), pathlib.Path(folder, "two.json")
            one.write_text(json.dumps(changed()), encoding="utf-8")
            same = {"HEDDLE_SPIN": "30", "HEDDLE_JOB_ID": "8", "OMPI_MCA_orte_hnp_uri": "1.0;tcp://..."}
            two.write_text(json.dumps(changed(environment=same, settings={**settings, "memory_allowed_bytes": 7})), encoding="utf-8")
            self.assertEqual(show("--launches", one, two).returncode, 0)
            for changes, name, first, second in (({"ranks": 3}, "ranks", "2", "3"), ({"environment": {"HEDDLE_SPIN": "0"}}, "HEDDLE_SPIN", '"30"', '"0"'),
                                                 ({"environment": {}}, "HEDDLE_SPIN", '"30"', "not set"),
                                                 ({"environment": {**same, "UCX_TLS": "tcp"}}, "UCX_TLS", "not set", '"tcp"'),
                                                 ({"settings": {**settings, "rounds": 6}}, "rounds", "41", "6"),
                                                 ({"machine": {"cpu": "another"}}, "cpu", '"AMD EPYC"', '"another"')):
                two.write_text(json.dumps(changed(**changes)), encoding="utf-8")
                refused = show("--launches", one, two)
                self.assertEqual(refused.returncode, 2, refused.stdout)
                self.assertIn(f"these are not of one command: {name} is {first} in {one}, and {second} in {two}\n", refused.stderr)

    def test_a_launch_counts_once(self):
        """Else its ratio would have an interval of no width."""
        with tempfile.TemporaryDirectory() as folder:
            again = pathlib.Path(folder, "again.json")
            again.write_text(pathlib.Path(RESULTS).read_text(encoding="utf-8"), encoding="utf-8")
            refused = show("--launches", RESULTS, again)
            self.assertEqual(refused.returncode, 2, refused.stdout)
            self.assertIn(f"--launches: {RESULTS} and {again} are the same launch\n", refused.stderr)

    def test_results_of_one_side_are_a_table(self):
        """As benchmarks write them without --vs: times, bandwidths and overlaps. There is nothing to draw, nor to put together."""
        head = {"ranks": 2, "mpi_library": "an MPI", "mode": "heddle's own API", "settings": {"versus": "nothing"}}
        times = {"bytes": 8, "buffers": 63, "average_us": 0.7241, "minimum_us": 0.5721, "maximum_us": 1234.5, "iterations": 20, "algorithm": "-"}
        rates = {"bytes": 8, "buffers": 63, "average_mb_per_s": 5321.4, "minimum_mb_per_s": 5321.4, "maximum_mb_per_s": 5321.4, "iterations": 20, "algorithm": "-"}
        overlap = {"bytes": 8, "buffers": 63, "overall_us": 4, "compute_us": 2, "pure_us": 2, "overlap_percent": None, "rounds": 7, "no_overlap_because": "it is too short"}
        cases = [("heddle_allreduce", times, ["| bytes | average, us | minimum, us | maximum, us | iterations |", "| 8 | 0.724 | 0.572 | 1,234 | 20 |"]),
                 ("heddle_allreduce", {**times, "algorithm": "team"}, ["iterations | algorithm |", "| 20 | team |"]),
                 ("heddle_bw", rates, ["| bytes | average, MB/s | minimum, MB/s | maximum, MB/s | iterations |", "| 8 | 5,321 | 5,321 | 5,321 | 20 |"]),
                 ("heddle_iallreduce", overlap, ["| bytes | overall, us | compute, us | pure, us | overlap, % | rounds |", "| 8 | 4.00 | 2.00 | 2.00 | - | 7 |",
                                                 "8 bytes: no overlap is shown, since it is too short."])]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "plain.json")
            for program, row, parts in cases:
                path.write_text(json.dumps({**head, "program": program, "rows": [row]}), encoding="utf-8")
                shown = show(path)
                self.assertEqual(shown.returncode, 0, shown.stderr)
                for part in [f"{program}, 2 ranks; heddle's own API, an MPI\n", *parts]:
                    self.assertIn(part, shown.stdout)
            for arguments, said in ((["--plot", f"{folder}/x.png"], "--plot draws two sides, and this is of one"), (["--launches"], "--launches: takes results of --vs mpi")):
                refused = show(*arguments, path)
                self.assertEqual(refused.returncode, 2)
                self.assertIn(said, refused.stderr)

    def test_files_of_later_versions_are_refused(self):
        hosts = json.loads((DOCUMENTED / "hosts" / "allreduce-4-hosts-small.json").read_text(encoding="utf-8"))
        one = json.loads(pathlib.Path(RESULTS).read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "later.json")
            for result, writer in (({**one, "heddle_version": "7.1.0", "build": {"source": "abcdef0"}}, r"heddle 7\.1\.0 \(abcdef0\)"), (one, r"heddle 0\.1\.0"),
                                   ({**hosts, "heddle_source": "fedcba9"}, r"a later heddle \(fedcba9\)")):
                path.write_text(json.dumps({**result, "schema": 1}), encoding="utf-8")
                self.assertEqual(show(path).returncode, 0)
                path.write_text(json.dumps({**result, "schema": show_results.SCHEMA + 1}), encoding="utf-8")
                refused = show(path)
                self.assertEqual(refused.returncode, 2, refused.stdout)
                self.assertRegex(refused.stderr, f"{path}: {writer} wrote it with schema 2, and here files are known up to schema 1: show it with ")

    def test_intervals_are_of_order_statistics(self):
        for n, low, high in ((6, 1, 6), (9, 2, 8), (20, 6, 15), (41, 14, 28)):
            self.assertEqual(show_results.order_interval(list(range(1, n + 1))), (low, high))
        self.assertIsNone(show_results.order_interval([1, 2, 3, 4, 5]))

    def test_a_picture_needs_matplotlib(self):
        # -S: without site-packages.
        drawn = subprocess.run([sys.executable, "-S", SHOW, "--plot", os.devnull, RESULTS], stderr=subprocess.PIPE, encoding="utf-8", timeout=60, check=False)
        self.assertNotEqual(drawn.returncode, 0)
        self.assertEqual(len(drawn.stderr.splitlines()), 1, drawn.stderr)
        self.assertIn("matplotlib", drawn.stderr)

    def test_a_picture_says_what_was_measured_where(self):
        self.assertEqual(show_results.title(json.loads(pathlib.Path(RESULTS).read_text(encoding="utf-8"))),
                         "allreduce, 2 ranks, MPI_FLOAT\nMPI with heddle 0.1.0 preloaded, MPICH 4.0.2\nAMD EPYC")
        warm = {"program": "heddle_bcast", "ranks": 4, "hosts": 2, "mode": "heddle 0.1.0 native; device memory of a GPU", "settings": {"warm_buffers": True, "root": "fixed"},
                "geometric_mean_ratio": 1, "rows": [], "lack_of_cores": "2 ranks on a share 1 core"}
        self.assertEqual(show_results.title(warm), "bcast, 4 ranks on 2 hosts, warm buffers, root 0\nheddle 0.1.0 native; device memory of a GPU\n"
                         "Warning: 2 ranks on a share 1 core; times are those of\nwaiting for a core as well")

    def test_places_on_axes_can_be_read(self):
        for low, high, marks in ((0.09, 34, [0.1, 0.2, 0.5, 1, 2, 5, 10, 20]), (0.8, 1.25, [0.8, 0.9, 1, 1.1, 1.2]), (0.6, 2.1, [1, 1.5, 2]),
                                 (0.05, 700, [0.1, 1, 10, 100]), (110, 190, [120, 140, 160, 180])):
            self.assertEqual([round(mark, 9) for mark in show_results.marks(low, high)], marks)

    def test_a_picture_has_a_place_for_no_bytes(self):
        self.assertEqual(show_results.size_scale([4, 8]), {"value": "log"})
        self.assertEqual(show_results.size_scale([0, 4, 8]), {"value": "symlog", "linthresh": 4})
        self.assertEqual(show_results.size_scale([0]), {"value": "symlog", "linthresh": 1})

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "needs matplotlib")
    def test_a_picture_that_cannot_be_drawn_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for picture in ("no/such/folder.png", "picture.format"):
                drawn = show("--plot", f"{folder}/{picture}", RESULTS)
                self.assertEqual(drawn.returncode, 1, drawn.stderr)
                self.assertNotIn("Traceback", drawn.stderr)
                self.assertIn(f"--plot {folder}/{picture}: ", drawn.stderr)
            empty = pathlib.Path(folder, "empty.json")
            rows = json.loads(pathlib.Path(RESULTS).read_text(encoding="utf-8"))
            rows["rows"][0]["bytes"] = 0
            empty.write_text(json.dumps(rows), encoding="utf-8")
            drawn = show("--plot", f"{folder}/picture.png", empty)
            self.assertEqual(drawn.returncode, 0, drawn.stderr)
            self.assertTrue(os.path.exists(f"{folder}/picture.png"))

    def test_other_files_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            whole = pathlib.Path(RESULTS).read_text(encoding="utf-8")
            other = "not what heddle's benchmarks write with --json"
            for name, content, said in (("text", "size 8", f"{other}, or not all of it: line 1, column 1: "), ("cut", whole[:whole.index("rows")], f"{other}, or not all of it: line "),
                                        ("list", "[]", "no benchmark wrote it"), ("bytes", b"{\xff\xfe", f"{other}: byte 1 is no UTF-8\n"), ("missing", None, "No such file")):
                path = pathlib.Path(folder, name)
                if content is not None:
                    path.write_bytes(content if isinstance(content, bytes) else content.encode())
                shown = show(path)
                self.assertNotEqual(shown.returncode, 0, name)
                self.assertNotIn("Traceback", shown.stderr)
                self.assertIn(f"error: {path}: {said}", shown.stderr)
            self.assertIn(folder, show(folder).stderr.splitlines()[-1])


if __name__ == "__main__":
    unittest.main()
