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
                self.assertRegex(shown.stderr.splitlines()[-1], "put together by hand.*peer_loop.c|tests/scale/show.py", path)

    def test_a_picture_needs_matplotlib(self):
        # -S: without site-packages.
        drawn = subprocess.run([sys.executable, "-S", SHOW, "--plot", os.devnull, RESULTS], stderr=subprocess.PIPE, encoding="utf-8", timeout=60, check=False)
        self.assertNotEqual(drawn.returncode, 0)
        self.assertEqual(len(drawn.stderr.splitlines()), 1, drawn.stderr)
        self.assertIn("matplotlib", drawn.stderr)

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
