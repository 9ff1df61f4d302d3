"""tools/show_results.py says in a line what is wrong with what it is given."""
import importlib.util
import json
import os
import pathlib
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
        head = {"ranks": 2, "mpi_library": "an MPI", "heddle_version": "0.1.0", "mode": "heddle's own API", "settings": {"versus": "nothing"}}
        times = {"bytes": 8, "buffers": 63, "average_us": 0.7241, "minimum_us": 0.5721, "maximum_us": 1234.5, "iterations": 20, "algorithm": "-"}
        rates = {"bytes": 8, "buffers": 63, "average_mb_per_s": 5321.4, "minimum_mb_per_s": 5321.4, "maximum_mb_per_s": 5321.4, "iterations": 20, "algorithm": "-"}
        overlap = {"bytes": 8, "buffers": 63, "overall_us": 4, "compute_us": 2, "pure_us": 2, "overlap_percent": None, "rounds": 7, "no_overlap_because": "it is too short"}
        cases = [("heddle_allreduce", times, ["| bytes | average, us | minimum, us | maximum, us | iterations |", "| 8 | 0.724 | 0.572 | 1,234 | 20 |"]),
                 ("heddle_allreduce", {**times, "algorithm": "team"}, ["iterations | algorithm |", "| 20 | team |"]),
                 ("heddle_bw", rates, ["| bytes | average, MB/s | minimum, MB/s | maximum, MB/s | iterations |", "| 8 | 5,321 | 5,321 | 5,321 | 20 |"]),
                 ("heddle_iallreduce", overlap, ["| bytes | overall, us | compute, us | pure, us | overlap, % | rounds |", "| 8 | 4 | 2 | 2 | - | 7 |",
                                                 "8 bytes: no overlap is shown, since it is too short."])]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "plain.json")
            for program, row, parts in cases:
                path.write_text(json.dumps({**head, "program": program, "rows": [row]}), encoding="utf-8")
                shown = show(path)
                self.assertEqual(shown.returncode, 0, shown.stderr)
                for part in [f"{program}, 2 ranks, heddle's own API, an MPI", *parts]:
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
        self.assertEqual(show_results.title(json.loads(pathlib.Path(RESULTS).read_text(encoding="utf-8"))), "allreduce, 2 ranks\nAMD EPYC")
        self.assertEqual(show_results.title({"program": "heddle_bcast", "ranks": 4, "settings": {"warm_buffers": True}}), "bcast, 4 ranks, warm")

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
            for name, content in ("text", "size 8"), ("list", "[]"), ("bytes", b"\xff\xfe"), ("missing", None):
                path = pathlib.Path(folder, name)
                if content is not None:
                    path.write_bytes(content if isinstance(content, bytes) else content.encode())
                shown = show(path)
                self.assertNotEqual(shown.returncode, 0, name)
                self.assertNotIn("Traceback", shown.stderr)
                self.assertIn(str(path), shown.stderr)
            self.assertIn(folder, show(folder).stderr.splitlines()[-1])


if __name__ == "__main__":
    unittest.main()
