"""tools/show_results.py says in a line what is wrong with what it is given."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SHOW = sys.argv.pop(1)
RESULTS = sys.argv.pop(1)


def show(*arguments):
    return subprocess.run([sys.executable, SHOW, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          encoding="utf-8", timeout=60, check=False)


class ShowResults(unittest.TestCase):
    def test_results_are_a_table(self):
        shown = show(RESULTS)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn("|---", shown.stdout)

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
