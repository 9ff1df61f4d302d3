"""tools/compare_runs.py: what it prints of runs adds up, and what differs is told.

    compare_runs_test.py COMPARE_RUNS
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

COMPARE = sys.argv.pop(1)
SERVED = "heddle[0] info: allreduce up to 1023 bytes: team (measured)\n"


def compare(host, heddle):
    """`host`, `heddle`: (loss, seconds, seconds in collectives) of each run."""
    with tempfile.TemporaryDirectory() as folder:
        for kind, runs in (("host", host), ("heddle", heddle)):
            for number, (loss, seconds, collective) in enumerate(runs, 1):
                pathlib.Path(folder, f"{kind}.{number}.out").write_text(
                    f"ranks 2, network\nresult loss={loss} accuracy=0.9749 seconds={seconds} collective_seconds={collective} collectives=14445\n", encoding="utf-8")
                pathlib.Path(folder, f"{kind}.{number}.err").write_text(SERVED, encoding="utf-8")
        return subprocess.run([sys.executable, COMPARE, folder], capture_output=True, text=True, timeout=60, check=False)


class CompareRuns(unittest.TestCase):
    def test_parts_add_up(self):
        done = compare([(0.0009, 8, 3)], [(0.0009, 6, 1)])
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = {name: (float(a), float(b), ratio) for name, a, b, ratio in re.findall(r"^  seconds (.*?)  +([\d.]+) +([\d.]+) +([\d.]+x)$", done.stdout, re.M)}
        self.assertEqual(rows, {"in collectives": (3, 1, "3.00x"), "elsewhere": (5, 5, "1.00x"), "in all": (8, 6, "1.33x")})

    def test_parts_add_up_where_medians_are_of_different_runs(self):
        """The run in the middle of all is shown, and not the middle of each column."""
        done = compare([(0.0009, 8, 3), (0.0009, 9, 5), (0.0009, 10, 2)], 3 * [(0.0009, 6, 1)])
        shown = [float(value) for value in re.findall(r"^  seconds .*?  +([\d.]+) ", done.stdout, re.M)]
        self.assertEqual(shown, [5, 4, 9])

    def test_another_loss_is_told(self):
        done = compare([(0.0009, 8, 3)], [(0.0010, 6, 1)])
        self.assertEqual(done.returncode, 1)
        self.assertIn("loss or accuracy differ", done.stderr)


if __name__ == "__main__":
    unittest.main()
