#!/usr/bin/env python3
"""Lists tests of a build directory: their names, or the files that they need built, one per line."""
import argparse
import collections
import json
import os
import re
import subprocess
import sys


def introspect(what, build):
    done = subprocess.run(["meson", "introspect", f"--{what}", build], check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def part(text):
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if not found or int(found[1]) >= int(found[2]):
        raise argparse.ArgumentTypeError(f"{text}: K/N is wanted, with K below N")
    return int(found[1]), int(found[2])


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["names", "targets"])
    parser.add_argument("build")
    parser.add_argument("pattern", help='regular expression that matches "suite name" of the tests wanted')
    parser.add_argument("--suite", default="", help="of these alone those of one suite")
    parser.add_argument("--part", type=part, default=(0, 1), metavar="K/N", help="the tests are dealt out: the part K of N")
    parser.add_argument("--always", default="(?!)", metavar="PATTERN", help="that are in every part")
    return parser.parse_args()


def suite_of(test):
    return test["suite"][0].split(":")[-1]


def wanted(tests, args):
    """One after the other as Meson lists them, so that tests that resemble each other go to different parts."""
    matching = [test for test in tests if re.search(args.pattern, f"{suite_of(test)} {test['name']}")]
    place, parts = args.part
    always = [test for test in matching if re.search(args.always, f"{suite_of(test)} {test['name']}")]
    dealt = [test for test in matching if test not in always][place::parts]
    return [test for test in matching if (test in always or test in dealt) and args.suite in ("", suite_of(test))]


def main():
    args = parse()
    every = introspect("tests", args.build)
    # `meson test NAME` runs all that have the name, whatever their suite.
    several = sorted(name for name, count in collections.Counter(test["name"] for test in every).items() if count > 1)
    if several:
        sys.exit(f"tests of one name in several suites: {', '.join(several)}; give each a name of its own in tests/*/meson.build")
    tests = wanted(every, args)
    if args.what == "names":
        lines = [test["name"] for test in tests]
    else:
        files = {target["id"]: target["filename"] for target in introspect("targets", args.build)}
        needed = {name for test in tests for name in test["depends"]}
        lines = sorted(os.path.relpath(file, args.build) for name in needed for file in files[name])
    print("".join(line + "\n" for line in lines), end="")


if __name__ == "__main__":
    main()
