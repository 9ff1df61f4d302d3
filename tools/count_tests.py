#!/usr/bin/env python3
"""Adds up what `meson test` found in a build directory, of so many tests: count_tests.py BUILD TESTS prints "passed failed skipped",
and a line for each failure's name; on stderr the failures with what they said. Tests that left no record have failed.

A GoogleTest program counts by its cases, any other test as one. The status that Meson noted for the program decides: a
program that died without failing a case counts as one failure.
"""
import json
import pathlib
import re
import sys
import xml.etree.ElementTree as xml


LINES_OF_A_CASE = 12
LINES_OF_A_PROGRAM = 40
SANITIZER = re.compile(r"(ERROR|WARNING): \w+Sanitizer|: runtime error: ")


def print_indented(text, most, first):
    """The first or the last lines of what a failure has to say; of a sanitizer's report the first ones."""
    lines = [line for line in text.splitlines() if line.strip()]
    report = next((number for number, line in enumerate(lines) if SANITIZER.search(line)), None)
    if report is not None:
        lines, first = lines[report:], True
    shown = lines[:most] if first else lines[-most:]
    if len(shown) < len(lines):
        shown.append(f"({len(lines) - len(shown)} more lines in testlog.txt)")
    for line in shown:
        print(f"      {line[:300]}", file=sys.stderr)


def count_cases(report, program, names):
    """(passed, failed, skipped) of one GoogleTest report of a program, or None where there is none to read. Adds to the failures' names."""
    try:
        cases = list(xml.parse(report).getroot().iter("testcase"))
    except (OSError, xml.ParseError):
        return None
    failed = [case for case in cases if case.find("failure") is not None]
    skipped = [case for case in cases
               if case.get("result") == "skipped" or case.get("status") == "notrun" or case.find("skipped") is not None]
    for case in failed:
        names.append(f"{program}: {case.get('classname')}.{case.get('name')}")
        print(f"    FAILED: {names[-1]}", file=sys.stderr)
        for failure in case.iter("failure"):
            print_indented(failure.get("message") or "", LINES_OF_A_CASE, first=True)
    return len(cases) - len(failed) - len(skipped), len(failed), len(skipped)


def main():
    build = pathlib.Path(sys.argv[1])
    passed = failed = skipped = records = 0
    names = []
    for line in (build / "meson-logs" / "testlog.json").read_text().splitlines():
        test = json.loads(line)
        records += 1
        name = test["name"].split(" / ")[-1]
        result = test["result"]
        cases = count_cases(build / f"{name}.xml", name, names)
        if result in ("OK", "EXPECTEDFAIL"):
            p, f, s = cases or (1, 0, 0)
        elif result == "SKIP":
            p, f, s = 0, 0, 1
        else:
            p, f, s = cases or (0, 0, 0)
            if f == 0:
                f = 1
                names.append(name)
                print(f"    {result}: {name}", file=sys.stderr)
                print_indented(test.get("stdout", "") + "\n" + test.get("stderr", ""), LINES_OF_A_PROGRAM, first=False)
        passed, failed, skipped = passed + p, failed + f, skipped + s
    missing = int(sys.argv[2]) - records
    if missing > 0:
        print(f"    {missing} tests left no record: meson test ended before them", file=sys.stderr)
        failed += missing
        names.append(f"{missing} tests without a record")
    print(passed, failed, skipped)
    for name in names:
        print(name)


if __name__ == "__main__":
    main()
