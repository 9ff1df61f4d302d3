"""Benchmarks built without MPI: heddle's own API is measured, and what needs MPI is refused with the way out.

    without_mpi_test.py HEDDLE_ALLREDUCE HEDDLE_SPARSE_ALLREDUCE
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))
import native_ranks  # noqa: E402

ALLREDUCE, SPARSE = sys.argv.pop(1), sys.argv.pop(1)
LAUNCHERS = ("RANK", "WORLD_SIZE", "PMI_", "PMIX_", "OMPI_", "MPI_")


def alone(*command, **variables):
    """Of a process that no launcher has started: its exit status and what it says on standard error."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)} | variables
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", timeout=60, check=False)
    return done.returncode, done.stderr


class WithoutMpi(unittest.TestCase):
    def test_no_mpi_is_linked(self):
        for program in (ALLREDUCE, SPARSE):
            self.assertNotIn("libmpi", subprocess.check_output(["ldd", program], encoding="utf-8"))

    def test_native_ranks_are_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            result = pathlib.Path(folder, "result.json")
            # An MPI's launcher may start them as well, as srun does with every program.
            for variables in ({}, {"PMI_RANK": "0"}):
                ranks = native_ranks.run([ALLREDUCE, "--native", "-c", "-m", "4:16", "-i", "20", "-x", "2", "--json", str(result)], 2, 60, **variables)
                self.assertEqual([status for status, _ in ranks], [0, 0], ranks)
                self.assertIn("native; 2 ranks; no MPI", ranks[0][1])
                self.assertEqual(ranks[0][1].count("Pass"), 3, ranks[0][1])
                self.assertEqual(json.loads(result.read_text())["mpi_library"], "no MPI")
        ranks = native_ranks.run([SPARSE, "-c", "--dimension", "1K", "--density", "1", "-i", "6", "-x", "1", "--rounds", "6", "--api", "in-place"], 2, 60)
        self.assertEqual([status for status, _ in ranks], [0, 0], ranks)

    def test_mpi_is_refused(self):
        for command, way_out in (([ALLREDUCE], "give --native"), ([ALLREDUCE, "--vs", "mpi"], "give --native"),
                                 ([ALLREDUCE, "--native"], "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"), ([SPARSE], "set RANK")):
            for variables in ({}, {"PMI_RANK": "0", "PMI_SIZE": "2"}):
                status, said = alone(*command, **variables)
                self.assertEqual(status, 1, said)
                self.assertRegex(said, f"built without MPI: .*{way_out}.*, or build heddle with -Dmpich=enabled")
                self.assertEqual(len(said.splitlines()), 1, said)
        ranks = native_ranks.run([ALLREDUCE, "--native", "--vs", "mpi"], 2, 60)
        self.assertEqual([status for status, _ in ranks], [1, 1], ranks)
        self.assertIn("--vs mpi: built without MPI", ranks[0][1])

    def test_one_rank_is_too_few(self):
        for command, option in (([ALLREDUCE, "--native"], "MASTER_PORT and --native "), ([SPARSE], "MASTER_PORT ")):
            (status, said), = native_ranks.run(command, 1, 60)
            self.assertEqual(status, 1, said)
            self.assertRegex(said, f"needs 2 ranks or more; start it with RANK, WORLD_SIZE=2, MASTER_ADDR and {option}[(]--help")

    def test_help_names_no_launcher_of_mpi(self):
        for program in (ALLREDUCE, SPARSE):
            text = subprocess.check_output([program, "--help"], encoding="utf-8")
            self.assertNotIn("mpiexec", text)
            self.assertIn("RANK=$r", text)


if __name__ == "__main__":
    unittest.main()
