#!/usr/bin/env python3
"""An installed heddle, moved elsewhere, is found by CMake: the examples are built with it and run, versions are told apart.

    cmake_test.py BUILD PREFIX VERSION

Exit status 77: skipped, and why is said.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))
import installed  # noqa: E402
import native_ranks  # noqa: E402

SKIPPED = 77
VERSION = sys.argv[3]
MAJOR, MINOR, PATCH = map(int, VERSION.split("."))
SONAME = f"libheddle.so.{MAJOR}.{MINOR}"
NEXT = f"{MAJOR}.{MINOR + 1}"
# What may be asked for, and whether this version will do.
BEFORE = f"{MAJOR}.{MINOR - 1}" if MINOR > 0 else f"{MAJOR - 1}"
ASKED = {f"{MAJOR}.{MINOR}": True, VERSION: True, f"{VERSION} EXACT": True, f"{MAJOR}.{MINOR}.{PATCH + 1}": False,
         BEFORE: False, NEXT: False, f"{MAJOR + 1}": False, f"{MAJOR + 1}.{MINOR}": False,
         f"0.0...{NEXT}": True, f"{NEXT}...{MAJOR + 1}": False, f"0.0...<{VERSION}": False, f"0.0...{VERSION}": True}
PROJECT = """cmake_minimum_required(VERSION 3.19)
project(asks LANGUAGES C)
set(place "${heddle_DIR}")
foreach(asked %s)
  set(heddle_DIR "${place}" CACHE PATH "" FORCE)
  separate_arguments(words UNIX_COMMAND "${asked}")
  find_package(heddle ${words} QUIET)
  message("asked ${asked}: ${heddle_FOUND}")
endforeach()
set(heddle_DIR "${place}" CACHE PATH "" FORCE)
find_package(heddle REQUIRED)
message("version: ${heddle_VERSION}")
message("preload: ${heddle_PRELOAD_LIBRARY}")
foreach(property IMPORTED_LOCATION IMPORTED_SONAME INTERFACE_INCLUDE_DIRECTORIES)
  get_target_property(value heddle::heddle ${property})
  message("${property}: ${value}")
endforeach()
""" % " ".join(f'"{asked}"' for asked in ASKED)


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=200, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def answers(folder, package):
    """What a project that finds the package in the folder `package` is told."""
    source, build = folder / "asks", folder / f"asked-{len(list(folder.iterdir()))}"
    source.mkdir(exist_ok=True)
    (source / "CMakeLists.txt").write_text(PROJECT)
    said = run("cmake", "-S", source, "-B", build, f"-Dheddle_DIR={package}")
    return dict(re.findall(r"^([\w .<]+): (.+)$", said, re.M))


def check_answers(told, tree, library):
    for asked, found in ASKED.items():
        assert told[f"asked {asked}"] == str(int(found)), (asked, told)
    assert told["version"] == VERSION, told
    assert pathlib.Path(told["preload"]).samefile(library.parent / "libheddle_preload.so"), told
    assert pathlib.Path(told["IMPORTED_LOCATION"]).samefile(library) and told["IMPORTED_LOCATION"].endswith(f".so.{VERSION}"), told
    assert (library.parent / told["IMPORTED_SONAME"]).samefile(library) and told["IMPORTED_SONAME"] == SONAME, told
    headers = pathlib.Path(told["INTERFACE_INCLUDE_DIRECTORIES"])
    assert (headers / "heddle" / "heddle.hpp").is_file() and headers.resolve().is_relative_to(tree.resolve()), told


def check_examples(folder, tree):
    build = folder / "examples"
    run("cmake", "-S", tree / "share" / "heddle" / "examples", "-B", build, f"-DCMAKE_PREFIX_PATH={tree}")
    run("cmake", "--build", build)
    assert (build / "sparse_logistic").is_file()
    ranks = native_ranks.run([build / "native_allreduce"], 2, 60)
    assert ranks == [(0, f"rank {rank} of 2: 2 ranks, which add up to 1\n") for rank in range(2)], ranks


def main():
    if shutil.which("cmake") is None:
        print("no cmake here")
        return SKIPPED
    with installed.installed(*sys.argv[1:3]) as tree, tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        package = next(tree.rglob("heddle-config.cmake")).parent
        library = package.parent.parent / f"libheddle.so.{VERSION}"
        check_answers(answers(folder, package), tree, library)
        # By way of a link, as /lib leads to /usr/lib.
        link = folder / "lib"
        link.symlink_to(package.parent.parent)
        check_answers(answers(folder, link / "cmake" / "heddle"), tree, library)
        check_examples(folder, tree)
    return 0


if __name__ == "__main__":
    sys.exit(main())
