"""What is installed is where documentation and distributions look for it, and works from there.

    installed_test.py BUILD PREFIX LIBDIR LIBEXECDIR
"""
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))
import installed  # noqa: E402

BUILD, PREFIX, LIBDIR, LIBEXECDIR = sys.argv[1:5]
del sys.argv[1:5]
# What pages, scripts and examples name below dist/, which is an installation with lib/ and libexec/.
NAMED = re.compile(r"\bdist/((?:bin|lib|libexec|share)/[\w./-]*\w)")
PAGES = ["README.md", "CONTRIBUTING.md", "quickstart", *sorted(page.relative_to(ROOT) for folder in ("docs", "examples") for page in (ROOT / folder).rglob("*.*"))]
FOLDERS = {"lib": LIBDIR, "libexec": LIBEXECDIR}


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        context = installed.installed(BUILD, PREFIX)
        cls.tree = context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)

    def run_here(self, program, *arguments):
        done = subprocess.run([self.tree / program, *arguments], cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", timeout=60,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_what_pages_name_is_there(self):
        named = {(page, path) for page in PAGES for path in NAMED.findall((ROOT / page).read_text(encoding="utf-8", errors="replace").replace("$dist", "dist"))}
        self.assertGreater(len(named), 10)
        for page, path in sorted(named, key=str):
            top, _, rest = path.partition("/")
            self.assertTrue((self.tree / FOLDERS.get(top, top) / rest).exists(), f"{page}: dist/{path}")

    def test_share_serves_every_machine(self):
        for path in (self.tree / "share").rglob("*"):
            if path.is_file():
                self.assertNotEqual(path.read_bytes()[:4], b"\x7fELF", path)

    def test_results_are_shown(self):
        for name in ("zen5/allreduce-2-ranks-vs-mpich.json", "hosts/allreduce-4-hosts-small.json"):
            self.assertIn("| ratio |", self.run_here("bin/heddle-show-results", ROOT / "docs" / "results" / name))

    def test_programs_find_the_library(self):
        for program in (self.tree / "bin").iterdir():
            self.assertIn("sage: ", self.run_here(f"bin/{program.name}", "--help"))


if __name__ == "__main__":
    unittest.main()
