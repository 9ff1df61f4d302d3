"""heddle-tune measures, writes a tuning file that jobs then follow, and refuses what it cannot do before it measures.

    heddle_tune_test.py HEDDLE-TUNE HEDDLE-INFO [MPIEXEC FAILING]      FAILING: tests/bench/fail_alloc.so
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import native_ranks  # noqa: E402

TUNE, INFO = sys.argv.pop(1), sys.argv.pop(1)
UNDER_MPI = len(sys.argv) > 2 and not sys.argv[1].startswith("-")
MPIEXEC, FAILING = (sys.argv.pop(1), sys.argv.pop(1)) if UNDER_MPI else ("", "")
SECONDS = 100
QUICK = ["-m", "4:8K", "--budget", "1.5"]


def plain_environment(**settings):
    keep = {k: v for k, v in os.environ.items()
            if not k.startswith("HEDDLE_") and k not in ("LD_PRELOAD", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    return keep | settings


def tune(*arguments, ranks=2, **settings):
    """Exit status and output of each rank, started without MPI."""
    return native_ranks.run([TUNE, *arguments], ranks, SECONDS, **settings)


def mpi_tune(*arguments, ranks=2, **settings):
    return subprocess.run([MPIEXEC, "-n", str(ranks), TUNE, *arguments], env=plain_environment(**settings), timeout=SECONDS,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", check=False)


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file, self.json = self.at("tuning.json"), self.at("all.json")

    def at(self, name):
        return os.path.join(self.folder.name, name)

    def check_file(self, ranks, nodes, sizes):
        """The file says what the measurements say. Returns the rules."""
        tuning, found = read(self.file), read(self.json)
        self.assertEqual(tuning["version"], 1)
        self.assertIn(f"{ranks} ranks on {nodes} node", tuning["made_for"])
        self.assertEqual((found["ranks"], found["nodes"]), (ranks, nodes))
        for collective in ["allreduce", "bcast"]:
            self.assertEqual([s["bytes"] for s in found["sizes"] if s["collective"] == collective], sizes)
        winners = {}
        for size in found["sizes"]:
            self.assertEqual(size["serves"], [size["bytes"], 2 * size["bytes"] - 1])
            for candidate in size["candidates"]:
                self.assertGreater(candidate["price_us"], 0)
                self.assertEqual(candidate["measured_us"] is not None, "not run" not in candidate["outcome"])
            if size["winner"] != 0:
                winners[size["collective"], size["bytes"]] = size["candidates"][size["winner"]]
        for rule in tuning["rules"]:
            self.assertEqual((rule["ranks"], rule["nodes"]), ([ranks, ranks], [nodes, nodes]))
            bytes_ = rule["bytes"][0]
            while bytes_ < rule["bytes"][1]:
                winner = winners.pop((rule["collective"], bytes_))
                for key in ["algorithm", "radix", "chunks", "leaders"]:
                    self.assertEqual(winner[key], rule[key])
                bytes_ *= 2
            self.assertEqual(bytes_, rule["bytes"][1] + 1)
        self.assertEqual(winners, {}, "winners without a rule")
        return tuning["rules"]


def sizes(first, last):
    return [1 << k for k in range(first.bit_length() - 1, last.bit_length())]


class WithoutMpi(Case):
    def test_measures_and_jobs_follow(self):
        ranks = tune("-o", self.file, "--json", self.json, *QUICK)
        for status, output in ranks:
            self.assertEqual(status, 0, output)
        self.assertEqual(ranks[1][1], "", "rank 0 speaks")
        for part in ["allreduce", "bcast", "by price", "price / time", self.file, "4 B"]:
            self.assertIn(part, ranks[0][1])
        rules = self.check_file(2, 1, sizes(4, 8192))
        if rules:
            self.assertIn("HEDDLE_TUNING_FILE=" + self.file, ranks[0][1])
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["all.json", "tuning.json"], "nothing else stays")
        self.check_that_jobs_follow(rules)

    def check_that_jobs_follow(self, rules):
        chosen = [self.chosen(HEDDLE_TUNING_FILE=self.file), self.chosen()]
        for collective in ["allreduce", "bcast"]:
            for size in sizes(4, 8192):
                ruled = [r["algorithm"] for r in rules
                         if r["collective"] == collective and r["bytes"][0] <= size <= r["bytes"][1]]
                self.assertEqual(chosen[0][collective, size], ruled[0] if ruled else chosen[1][collective, size])
                first = [s["candidates"][0]["algorithm"] for s in read(self.json)["sizes"]
                         if (s["collective"], s["bytes"]) == (collective, size)]
                self.assertEqual(first, [chosen[1][collective, size]], "the first candidate is the choice by price")

    @staticmethod
    def chosen(**settings):
        """What two ranks of this machine would use, by collective and size."""
        done = subprocess.run([INFO, "--json", "-n", "2"], env=plain_environment(HEDDLE_MEASURE="0", **settings), check=True,
                              stdout=subprocess.PIPE, timeout=SECONDS)
        ranges = json.loads(done.stdout)["algorithms"]["ranges"]
        return {(r["collective"], size): r["algorithm"] for r in ranges for size in sizes(r["first_bytes"], r["last_bytes"])}

    def test_one_collective_and_few_sizes(self):
        for status, output in tune("-o", self.file, "--json", self.json, "-c", "bcast", "-m", "1K:2K", "-t", "4", ranks=3):
            self.assertEqual(status, 0, output)
        self.assertEqual([(s["collective"], s["bytes"]) for s in read(self.json)["sizes"]], [("bcast", 1024), ("bcast", 2048)])

    def test_a_file_that_is_there_is_replaced_and_not_used(self):
        pathlib.Path(self.file).write_text("not JSON", encoding="utf-8")
        (status, output), _ = tune("-o", self.file, "-m", "4:8", "-t", "1", HEDDLE_TUNING_FILE=self.file)
        self.assertEqual(status, 0, output)
        self.assertIn("left out", output)
        self.assertNotIn("is not used", output, "a complaint about a file that is not wanted")
        self.assertEqual(read(self.file)["version"], 1)


class Refusals(Case):
    def refused(self, *arguments, parts, ranks=2, wanted=1, **settings):
        began = time.monotonic()
        outcomes = tune(*arguments, ranks=ranks, **settings)
        self.assertLess(time.monotonic() - began, 20, "it measured first")
        for status, output in outcomes:
            self.assertEqual(status, wanted, output)
        for part in parts:
            self.assertIn(part, outcomes[0][1])
        self.assertEqual("".join(output for _, output in outcomes[1:]), "", "said once")
        self.assertFalse(os.path.exists(self.file))

    def test_wrong_options(self):
        o = ["-o", self.file]
        for wrong in ["8:4", "3", "6:8", "1:2", "4:x", ":", "4:8:16"]:
            self.refused(*o, "-m", wrong, parts=["--sizes " + wrong, "powers of two", "4:64M"], wanted=2)
        self.refused(*o, "-c", "allreduce,gather", parts=["--collectives allreduce,gather", '"gather"', "allreduce, bcast or both"], wanted=2)
        for wrong in ["0", "nan"]:
            self.refused(*o, "-t", wrong, parts=["--budget: " + wrong], wanted=2)
        self.refused(*o, "--no-such", parts=["--no-such"], wanted=2)
        self.refused(parts=["--output"], wanted=2)

    def test_what_cannot_be_written(self):
        self.refused("-o", self.at("no/such/tuning.json"), parts=["no/such/tuning.json cannot be written", "No such file"])
        self.refused("-o", self.folder.name, parts=[self.folder.name + " is something else than a file"])
        self.refused("-o", self.file, "--json", self.at("no/such.json"), parts=["no/such.json cannot be written"])

    def test_a_report_in_place_of_the_file(self):
        for same in [self.file, self.at("./tuning.json")]:
            self.refused("-o", self.file, "--json", same, parts=["--json " + same, "that is the tuning file"], wanted=2)

    def test_a_budget_that_decides_nothing(self):
        pathlib.Path(self.file).write_text("earlier", encoding="utf-8")
        outcomes = tune("-o", self.file, "-m", "64M:64M", "-t", "0.1")
        self.assertEqual([status for status, _ in outcomes], [1, 1], outcomes)
        for part in ["--budget 0.1", "too short to decide any size", self.file + " was not written"]:
            self.assertIn(part, outcomes[0][1])
        self.assertNotIn("clearly faster", outcomes[0][1])
        self.assertEqual(pathlib.Path(self.file).read_text(encoding="utf-8"), "earlier")

    def test_a_forced_algorithm(self):
        self.refused("-o", self.file, parts=['HEDDLE_ALGORITHM="ring"', "unset it"], HEDDLE_ALGORITHM="ring")

    def test_one_rank(self):
        self.refused("-o", self.file, parts=["one rank has nothing to choose", "mpiexec -n 16"], ranks=1)
        alone = subprocess.run([TUNE, "-o", self.file], env=plain_environment(), stderr=subprocess.PIPE, encoding="utf-8",
                               timeout=SECONDS, check=False)
        self.assertEqual(alone.returncode, 1)
        for part in ["one rank has nothing to choose", "WORLD_SIZE"]:
            self.assertIn(part, alone.stderr)

    def run_two(self, first, second, stop_after=None, **settings):
        """Two ranks with command lines of their own; the second is killed, or (None) never started."""
        environments = native_ranks.environments(2, **settings)
        commands = [first] if second is None else [first, second]
        ranks = [subprocess.Popen([TUNE, *command], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                 for command, env in zip(commands, environments)]
        try:
            if stop_after is not None:
                # From when they have met: starting takes long on a busy machine.
                while "info: barrier" not in (line := ranks[0].stdout.readline()):
                    self.assertTrue(line, "the ranks did not meet")
                time.sleep(stop_after)
                ranks[1].kill()
            return [(rank.communicate(timeout=SECONDS)[0], rank.returncode) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()

    def test_ranks_that_disagree(self):
        outcomes = self.run_two(["-o", self.file, "-m", "4:64"], ["-o", self.file, "-m", "4:128"])
        self.assertEqual([status for _, status in outcomes], [1, 1])
        for part in ["rank 1", "4:128", "rank 0", "4:64", "the same"]:
            self.assertIn(part, outcomes[0][0])

    def test_a_rank_that_never_comes(self):
        ((output, status),) = self.run_two(["-o", self.file], None, HEDDLE_TIMEOUT="2")
        self.assertEqual(status, 1)
        self.assertIn("rank 1", output)

    def test_a_rank_that_is_lost_on_the_way(self):
        (output, status), _ = self.run_two(["-o", self.file], ["-o", self.file], stop_after=2, HEDDLE_TIMEOUT="10", HEDDLE_LOG="info")
        self.assertEqual(status, 1, output)
        for part in ["rank 0: ", " bytes by ", "rank 1", "nothing was written"]:
            self.assertIn(part, output)
        self.assertFalse(os.path.exists(self.file))


@unittest.skipUnless(MPIEXEC, "no mpiexec")
class UnderMpi(Case):
    def test_one_node(self):
        done = mpi_tune("-o", self.file, "--json", self.json, *QUICK)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_file(2, 1, sizes(4, 8192))

    def test_nodes_joined_by_mpi(self):
        done = mpi_tune("-o", self.file, "--json", self.json, "-m", "4:1K", "-t", "10", ranks=3, HEDDLE_TRANSPORTS="mpi")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("3 ranks on 3 nodes", done.stdout)
        self.check_file(3, 3, sizes(4, 1024))
        names = {c["algorithm"] for s in read(self.json)["sizes"] for c in s["candidates"]}
        self.assertTrue({"ring", "recursive_doubling", "chain"} <= names, names)
        self.assertNotIn("team", names)

    def test_a_launcher_of_another_mpi(self):
        """It says how many there are, in a way that this MPI does not understand: each process is alone."""
        said = []
        for rank in "01":
            environment = plain_environment(OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK=rank)
            done = subprocess.run([TUNE, "-o", self.file], env=environment, stderr=subprocess.PIPE, encoding="utf-8", timeout=SECONDS, check=False)
            self.assertEqual(done.returncode, 1)
            said.append(done.stderr)
        for part in ["belongs to another MPI", "OMPI_COMM_WORLD_SIZE", "-n 2"]:
            self.assertIn(part, said[0])
        self.assertEqual(said[1], "")

    def test_an_end_on_the_way_is_read(self):
        """All ranks are ended, and what they say last is not lost with them."""
        words = pathlib.Path(self.at("words"))
        done = mpi_tune("-o", self.file, "-m", "16M:16M", LD_PRELOAD=FAILING, LAST_WORDS=str(words))
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "rank [01]: a rank has no memory for two vectors of 16777216 bytes, the largest size; nothing was written")
        self.assertEqual(set(words.read_text(encoding="utf-8").splitlines()), {"waited"})
        self.assertFalse(os.path.exists(self.file))

    def test_refusals_are_said_once(self):
        done = mpi_tune("-o", self.file, "-m", "8:4")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count("--sizes 8:4"), 1, done.stderr)
        done = mpi_tune("-o", self.file, ranks=1)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("one rank has nothing to choose", done.stderr)


class Information(unittest.TestCase):
    def test_help_and_version_need_no_ranks(self):
        for option, parts in [("--help", ["--output", "--sizes", "--budget", "mpiexec -n 16", "WORLD_SIZE"]), ("--version", ["heddle 0."]), ("-v", ["heddle 0."])]:
            done = subprocess.run([TUNE, option], env=plain_environment(), stdout=subprocess.PIPE, encoding="utf-8",
                                  timeout=SECONDS, check=False)
            self.assertEqual(done.returncode, 0)
            for part in parts:
                self.assertIn(part, done.stdout)


if __name__ == "__main__":
    unittest.main()
