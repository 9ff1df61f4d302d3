"""What is installed is where documentation and distributions look for it, and works from there.

    installed_test.py BUILD PREFIX LIBDIR LIBEXECDIR MANDIR
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))
import installed  # noqa: E402

BUILD, PREFIX, LIBDIR, LIBEXECDIR, MANDIR = sys.argv[1:6]
del sys.argv[1:6]
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
            self.assertIn("Usage: ", self.run_here(f"bin/{program.name}", "--help"))

    # Modules lie beside the libraries; of a program that is found by way of PATH the linker knows only a name.
    def test_networks_are_found_however_a_program_is_started(self):
        def networks(program):
            done = subprocess.run([program, "--json"], cwd="/", env=os.environ | {"PATH": f"{self.tree / 'bin'}:{os.environ['PATH']}"},
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=60, check=False)
            return [line.strip() for line in done.stdout.splitlines() if "libheddle_network" in line]
        self.assertEqual(networks("heddle-info"), networks(self.tree / "bin" / "heddle-info"))

    def test_programs_have_pages_of_the_manual(self):
        pages = self.tree / MANDIR
        if not pages.exists():
            self.skipTest("this build has no manual pages")
        for program in (self.tree / "bin").iterdir():
            text = (pages / "man1" / f"{program.name}.1").read_text(encoding="utf-8")
            for part in (f"\n.SH NAME\n{program.name} \\- ", f"\n.SH SYNOPSIS\n.B {program.name}\n", '\n.SH "EXIT STATUS"\n', '\n.SH "SEE ALSO"\n', "\n.TP\n\\fB\\-"):
                self.assertIn(part, text, program)
        text = (pages / "man7" / "libheddle_preload.7").read_text(encoding="utf-8")
        variables = re.findall(r"^\| `(HEDDLE_\w+)`", self.run_here("bin/heddle-info", "--environment-table"), re.M)
        self.assertGreater(len(variables), 30)
        self.assertEqual(re.findall(r"^\.TP\n\\fB(HEDDLE_\w+)\\fR=", text, re.M), variables)
        self.assertNotIn("`", text)

    @unittest.skipUnless(shutil.which("groff"), "needs groff")
    def test_pages_are_well_formed(self):
        for page in (self.tree / MANDIR).rglob("*.[17]"):
            done = subprocess.run(["groff", "-man", "-ww", "-rLL=300n", "-Tutf8", "-K", "utf8", page], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  encoding="utf-8", timeout=60, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""), page)
            for name, section in re.findall(r"^\.BR (\S+) \((\d)\)", page.read_text(encoding="utf-8"), re.M):
                self.assertTrue((self.tree / MANDIR / f"man{section}" / f"{name}.{section}").exists(), f"{page.name}: {name}({section})")


if __name__ == "__main__":
    unittest.main()
