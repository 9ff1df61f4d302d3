"""The preload library's page of the manual: PAGE with the variables that heddle-info knows in the place of its line @table@.

    preload_page.py PAGE HEDDLE_INFO OUTPUT
"""
import pathlib
import re
import subprocess
import sys


def roff(text):
    """Of Markdown as the table has it: words between backticks are bold."""
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"`([^`]*)`", r"\\fB\1\\fR", text)


def entries(table):
    for line in table.splitlines()[2:]:  # after the head and its rule
        name, values, default, meaning = map(roff, line.strip("| ").split(" | "))
        yield f".TP\n{name}={values}\n{meaning} Default: {default}."


def main():
    page, info, output = sys.argv[1:]
    table = subprocess.check_output([info, "--environment-table"], encoding="utf-8")
    text = pathlib.Path(page).read_text(encoding="utf-8")
    pathlib.Path(output).write_text(text.replace("@table@", "\n".join(entries(table))), encoding="utf-8")


if __name__ == "__main__":
    main()
