#!/usr/bin/env python3
"""Adds up what `meson test` found in a build directory: prints "passed failed skipped", failures on stderr.

A GoogleTest program counts by its cases, any other test as one. The status that Meson noted for the program decides: a
program that died without failing a case counts as one failure.
"""
import json
import pathlib
import sys
import xml.etree.ElementTree as xml


def count_cases(report):
    """(passed, failed, skipped) of one GoogleTest report, or None where there is none to read."""
    try:
        cases = list(xml.parse(report).getroot().iter("testcase"))
    except (OSError, xml.ParseError):
        return None
    failed = [case for case in cases if case.find("failure") is not None]
    skipped = [case for case in cases
               if case.get("result") == "skipped" or case.get("status") == "notrun" or case.find("skipped") is not None]
    for case in failed:
        print(f"    failed: {case.get('classname')}.{case.get('name')}", file=sys.stderr)
    return len(cases) - len(failed) - len(skipped), len(failed), len(skipped)


def main():
    build = pathlib.Path(sys.argv[1])
    passed = failed = skipped = 0
    for line in (build / "meson-logs" / "testlog.json").read_text().splitlines():
        test = json.loads(line)
        name = test["name"].split(" / ")[-1]
        result = test["result"]
        cases = count_cases(build / f"{name}.xml")
        if result in ("OK", "EXPECTEDFAIL"):
            p, f, s = cases or (1, 0, 0)
        elif result == "SKIP":
            p, f, s = 0, 0, 1
        else:
            p, f, s = cases or (0, 0, 0)
            f = max(f, 1)
            print(f"    {result}: {name}", file=sys.stderr)
        passed, failed, skipped = passed + p, failed + f, skipped + s
    print(passed, failed, skipped)


if __name__ == "__main__":
    main()
