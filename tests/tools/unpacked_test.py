#!/usr/bin/env python3
"""The sources, unpacked where they were not written: into a folder with blanks in its name, which belongs to a repository of somebody else's. What is configured there, and
which version it says that it is.

    unpacked_test.py VERSION

Exit status 77: skipped, and why is said.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SKIPPED = 77
GIT = ["git", "-c", "user.name=somebody", "-c", "user.email=somebody@localhost", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"]


def run(*command, fails=False):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=200, check=False)
    assert (done.returncode != 0) == fails, done.stdout
    return done.stdout


def repository(folder, tag):
    """Of all that is in it, in one commit with a tag."""
    run(*GIT, "init", "--quiet", folder)
    run(*GIT, "-C", folder, "add", ".")
    run(*GIT, "-C", folder, "commit", "--quiet", "--allow-empty", "--message", "all of it")
    run(*GIT, "-C", folder, "tag", "--annotate", tag, "--message", tag)


def configure(source, build, *options, fails=False):
    return run("meson", "setup", "-Dtests=false", *options, build, source, fails=fails)


def made(build, name):
    run("ninja", "-C", build, name)
    return (build / name).read_text(encoding="utf-8")


def check_pages(source, folder):
    """Where help2man is missing none are made, unless they were asked for: then it is said."""
    missing = folder / "missing.ini"
    missing.write_text("[binaries]\nhelp2man = 'no-such-help2man'\n")
    said = configure(source, folder / "none", "--native-file", missing)
    assert re.search(r"manual pages: no: there is no help2man$", said, re.M), said
    said = configure(source, folder / "refused", "--native-file", missing, "-Dman=enabled", fails=True)
    assert "-Dman=enabled: no manual pages can be made, since there is no help2man" in said, said
    if shutil.which("help2man"):
        said = configure(source, folder / "sanitized", "-Dman=enabled", "-Db_sanitize=address", "-Db_lundef=false", fails=True)
        assert "-Dman=enabled: no manual pages can be made, since programs of this build cannot be run" in said, said


def check_version(source, build, version):
    """Of the sources' own repository, whatever tag it is at."""
    file = "osu_style_bench/build_id.cpp"
    assert f'return "{version}";' in made(build, file), made(build, file)
    repository(source, "v7.1")
    found = re.search(r'return "(\S+)";', made(build, file))
    assert found and re.fullmatch(r"v7\.1-0-g[0-9a-f]{7,}", found[1]), found


def main():
    if missing := [name for name in ("meson", "ninja", "git") if shutil.which(name) is None]:
        print(f"no {missing[0]} here")
        return SKIPPED
    with tempfile.TemporaryDirectory(suffix=" with blanks") as name:
        folder = pathlib.Path(name)
        repository(folder, "v99")
        source, build = folder / "heddle", folder / "build"
        shutil.copytree(ROOT, source, symlinks=True, ignore=shutil.ignore_patterns(".git", "build", "dist", "__pycache__"))
        check_pages(source, folder)
        said = configure(source, build)
        if "manual pages: yes" in said:
            page = made(build, "tools/man/heddle-show-results.1")
            assert "\nheddle-show-results \\- show results" in page, page
            assert re.search(r"FILE\.json .*\n\.SH DESCRIPTION\n", page), page
        if "heddle_bench" in (build / "build.ninja").read_text(encoding="utf-8"):
            check_version(source, build, sys.argv[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
