#!/usr/bin/env python3
"""Lists tests of a build directory: select_tests.py names|targets BUILD PATTERN [SUITE].

PATTERN is a regular expression that matches "suite name" of the tests wanted; SUITE, if not empty, restricts them further.
`names` prints the tests' names, `targets` the files that they need built, one per line.
"""
import collections
import json
import os
import re
import subprocess
import sys


def introspect(what, build):
    done = subprocess.run(["meson", "introspect", f"--{what}", build], check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def main():
    mode, build, pattern = sys.argv[1:4]
    suite = sys.argv[4] if len(sys.argv) > 4 else ""

    def wanted(test):
        of = test["suite"][0].split(":")[-1]
        return re.search(pattern, f"{of} {test['name']}") and (not suite or suite == of)

    every = introspect("tests", build)
    # `meson test NAME` runs all that have the name, whatever their suite.
    several = sorted(name for name, count in collections.Counter(test["name"] for test in every).items() if count > 1)
    if several:
        sys.exit(f"tests of one name in several suites: {', '.join(several)}; give each a name of its own in tests/*/meson.build")
    tests = [test for test in every if wanted(test)]
    if mode == "names":
        lines = [test["name"] for test in tests]
    else:
        files = {target["id"]: target["filename"] for target in introspect("targets", build)}
        needed = {name for test in tests for name in test["depends"]}
        lines = sorted(os.path.relpath(file, build) for name in needed for file in files[name])
    print("".join(line + "\n" for line in lines), end="")


if __name__ == "__main__":
    main()
