"""check_layers.py lets right trees pass and finds each kind of wrong include, and types of one name."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = sys.argv.pop(1)


class CheckLayers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        self.write("include/heddle/heddle.h", "")
        self.write("src/base/status.hpp", "#include <string>\n")
        self.write("src/schedule/step.hpp", '#include "base/status.hpp"\n')
        self.write("transports/transport.hpp", '#include "base/status.hpp"\n')
        self.write("transports/shm/shm.hpp", '#include "transports/transport.hpp"\n')
        self.write("src/engine/kernels/kernels.hpp", "#include <hwy/highway.h>\n")
        self.write("src/engine/engine.hpp", '#include "transports/transport.hpp"\n#include "engine/kernels/kernels.hpp"\n')
        self.write("collectives/ring.cpp", '#include "schedule/step.hpp"\n')

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def check(self, *more):
        command = [sys.executable, SCRIPT, "--root", str(self.root), *more]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", check=False)

    def expect_refused(self, name, text, says):
        self.write(name, text)
        result = self.check()
        self.assertEqual(result.returncode, 1, name)
        self.assertIn(name + ":", result.stderr)
        self.assertIn(says, result.stderr)

    def test_right_tree_passes(self):
        result = self.check()
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_algorithms_see_no_transport_engine_or_mpi(self):
        self.expect_refused("collectives/a.cpp", '#include "transports/transport.hpp"\n', "transports/transport.hpp")
        self.expect_refused("collectives/b.cpp", '#include "../src/engine/engine.hpp"\n', "src/engine/engine.hpp")
        self.expect_refused("collectives/c.cpp", "\n  #  include <mpi.h>\n", "c.cpp:2")
        self.expect_refused("collectives/d.cpp", "#include <cuda_runtime.h>\n", "<cuda_runtime.h>")

    def test_one_name_is_one_type(self):
        self.write("src/schedule/cursor.hpp", "namespace heddle {\nstruct Later;\nclass Cursor {\n};\n}  // namespace heddle\n")
        self.write("src/schedule/others.cpp", "namespace heddle {\nstruct Later;\nnamespace {\nstruct Cursor {};\n}  // namespace\nnamespace gpu {\nstruct Cursor {};\n"
                                              "}  // namespace gpu\n}  // namespace heddle\n")
        self.assertEqual(self.check().stderr, "")
        self.expect_refused("src/sparse/cursor.hpp", "namespace heddle {\ntemplate <typename T>\nstruct Cursor final : Later {\n};\n}  // namespace heddle\n",
                            "heddle::Cursor is a type in src/schedule/cursor.hpp as well")

    def test_upwards(self):
        self.expect_refused("src/base/a.cpp", '#include "schedule/step.hpp"\n', "may include only its own")
        self.expect_refused("src/schedule/a.cpp", '#include "engine/engine.hpp"\n', "src/engine/engine.hpp")
        self.expect_refused("transports/a.cpp", '#include "schedule/step.hpp"\n', "src/schedule/step.hpp")

    def test_the_engine_sees_interfaces_only(self):
        self.expect_refused("src/engine/a.cpp", '#include "transports/shm/shm.hpp"\n', "transports/shm/shm.hpp")

    def test_an_arrow_to_a_folder_does_not_reach_below(self):
        self.expect_refused("src/engine/kernels/a.cpp", '#include "engine/engine.hpp"\n', "src/engine/engine.hpp")

    def test_unknown_places(self):
        self.expect_refused("src/new/a.cpp", "", "belongs to no layer")
        self.expect_refused("src/base/b.cpp", '#include "no/such.hpp"\n', "no file of this repository")

    def test_outside_headers(self):
        self.expect_refused("src/base/a.cpp", "#include <nlohmann/json.hpp>\n", "src/select")
        self.expect_refused("src/base/b.cpp", "#include <gtest/gtest.h>\n", "tests")

    def test_stamp_and_depfile(self):
        stamp, depfile = self.root / "stamp", self.root / "deps"
        self.assertEqual(self.check("--stamp", str(stamp), "--depfile", str(depfile)).returncode, 0)
        text = depfile.read_text(encoding="utf-8")
        self.assertTrue(stamp.exists() and text.startswith(str(stamp) + ":"))
        self.assertIn("collectives/ring.cpp", text)
        stamp.unlink()
        self.write("src/base/a.cpp", '#include "schedule/step.hpp"\n')
        self.assertEqual(self.check("--stamp", str(stamp), "--depfile", str(depfile)).returncode, 1)
        self.assertFalse(stamp.exists())

    def test_nothing_to_check_is_a_mistake(self):
        self.root = self.root / "empty"
        self.root.mkdir()
        self.assertEqual(self.check().returncode, 1)


if __name__ == "__main__":
    unittest.main()
