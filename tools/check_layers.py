#!/usr/bin/env python3
"""Fails where a folder includes what its place in the architecture forbids, and where two files give one name to two types.

    check_layers.py --root DIR [--stamp FILE --depfile FILE]

Every build runs it (see the top-level meson.build). The tables below are the architecture: an arrow that is not here is
a mistake, and a new one is a decision to be written down in docs/architecture.md as well.
"""
import argparse
import pathlib
import re
import sys

# Folder: what its files may include besides their own. A name of a file allows that file alone. A file belongs to the
# longest folder that contains it.
ARROWS = {
    "include/heddle": [],
    "src/base": [],
    "src/schedule": ["src/base"],
    "collectives": ["src/schedule", "src/base"],
    "gpu": ["src/base"],
    "transports": ["src/base", "include/heddle/heddle.h"],
    "src/engine/kernels": ["src/base"],
    "src/sparse": ["src/base", "src/engine/kernels", "src/engine", "src/schedule", "transports/transport.hpp"],
    "src/engine": ["src/schedule", "src/base", "src/engine/kernels", "transports/transport.hpp", "transports/team.hpp",
                   "gpu"],
    "src/select": ["src/schedule", "src/base", "collectives"],
    "src/compress": ["src/base", "src/engine/kernels", "src/engine", "src/schedule", "src/sparse", "transports/transport.hpp"],
    "src/device": ["src/base", "src/schedule", "src/engine", "src/sparse", "src/compress", "transports", "gpu"],
    "src/setup": ["src/base", "src/schedule", "src/engine", "src/select", "src/compress", "src/device/device_ways.hpp",
                  "transports", "include/heddle/heddle.h"],
    "src/comm": ["src/base", "src/schedule", "src/engine", "src/engine/kernels", "src/select", "src/sparse",
                 "src/compress", "src/device", "src/setup", "transports", "gpu", "include/heddle/heddle.h"],
    "src/api": ["src/comm", "src/device", "src/setup", "src/sparse", "src/compress", "src/base", "src/schedule", "src/engine/kernels", "gpu/gpu.hpp",
                "include/heddle"],
    "src/interpose": ["src/comm", "src/device", "src/setup", "src/sparse", "src/compress", "src/base", "src/schedule", "src/select", "src/engine/kernels",
                      "gpu/gpu.hpp", "include/heddle/heddle.h"],
    "tools": ["src/comm", "src/setup", "src/device/gpu_direct.hpp", "src/base", "src/schedule", "src/select", "src/engine/kernels", "transports", "gpu/survey.hpp", "gpu/device_memory.hpp",
              "src/interpose/backend/finalize_together.hpp", "include/heddle"],
    "osu_style_bench": ["include/heddle", "src/base/launchers.hpp", "src/base/round_up.hpp", "src/base/text.hpp", "src/base/whole_file.hpp", "tools/help_lines.hpp", "tools/number_between.hpp", "tools/leave_mpi.hpp", "gpu/device_memory.hpp"],
    "examples": ["include/heddle"],
    # It stands for other people's jobs: nothing in it knows about heddle.
    "examples/train_digits": [],
}

# Outside headers that only some may see: pattern of the header, and the folders or files that may.
OUTSIDE = [
    (r"mpi(_.*)?\.h", ["src/interpose/backend", "include/heddle/heddle_mpi.h", "tools/leave_mpi.hpp", "osu_style_bench", "examples"]),
    (r"(cuda|cublas|nvml|nvrtc).*", ["gpu"]),
    (r"(infiniband|rdma|ucp|uct|ucs)/.*", ["transports"]),
    (r"hwloc.*", ["src/setup/hardware.cpp", "src/setup/topology.hpp", "src/setup/node_plan.cpp"]),
    (r"hwy/.*", ["src/engine/kernels", "src/sparse", "src/compress"]),
    (r"nlohmann/.*", ["src/select", "tools", "osu_style_bench"]),
    (r"CLI/.*", ["tools", "osu_style_bench"]),
    (r"gtest/.*", []),
]

# Two types of one name are undefined behaviour in a program that has both: templates over them are taken for one another. These are alternatives.
ALTERNATIVES = re.compile(r"src/interpose/backend/abi_\w+\.hpp|gpu/without_cuda\.cpp|(osu_style_bench|examples|tools)/.*")

# Where "x/y.hpp" is looked for, after the folder of the file that says so.
SEARCH = ["src", "", "include", "osu_style_bench", "tools"]
SOURCES = {".c", ".cc", ".cpp", ".h", ".hpp", ".cu", ".cuh"}
NAMESPACE = re.compile(r"(?:inline )?namespace ([\w:]*) ?\{")
TYPE = re.compile(r"(?:template <.*> )?(?:struct|class|union|enum|enum class) (?:\[\[\w+\]\] |alignas\(.*?\) )*(\w+)(?: final)?(?: :[^:;]*)?(?: \{.*)?$")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def inside(path, place):
    return path == place or path.startswith(place + "/")


def folder_of(path):
    """The entry of ARROWS that a file belongs to, or None."""
    return max((folder for folder in ARROWS if inside(path, folder)), key=len, default=None)


def find(root, including, name):
    """The repository's file that an include names, or None."""
    for base in [(root / including).parent] + [root / place for place in SEARCH]:
        candidate = base / name
        if candidate.is_file():
            return candidate.resolve().relative_to(root).as_posix()
    return None


def allowed(source, target):
    folder = folder_of(source)
    if folder == folder_of(target):
        return True
    # An allowed folder does not stand for those below it that have arrows of their own.
    return any(place == target or place == folder_of(target) for place in ARROWS[folder])


def complaint(root, path, quote, name):
    """What is wrong with one include of one file, or None."""
    target = find(root, path, name)
    if target is None:
        if quote == '"':
            return f'includes "{name}", which is no file of this repository'
        for pattern, places in OUTSIDE:
            if re.fullmatch(pattern, name) and not any(inside(path, place) for place in places):
                return f"includes <{name}>, which only {', '.join(places) or 'tests'} may"
        return None
    if folder_of(target) is None:
        return f"includes {target}, which belongs to no layer"
    if not allowed(path, target):
        return f"includes {target}; {folder_of(path)} may include only {', '.join(ARROWS[folder_of(path)]) or 'its own'}"
    return None


def types_of(lines):
    """Line number and full name of each type of a formatted file that others may see: nothing is indented in a namespace."""
    spaces = []
    for number, line in enumerate(lines, 1):
        space, type_ = NAMESPACE.match(line), TYPE.match(line)
        if space:
            spaces.append(space.group(1))
        elif line.startswith("}  // namespace") and spaces:
            spaces.pop()
        elif type_ and "" not in spaces:
            yield number, "::".join(spaces + [type_.group(1)])


def sources_of(root):
    tops = sorted({folder.split("/")[0] for folder in ARROWS})
    for top in tops:
        if (root / top).is_dir():
            yield from sorted(p for p in (root / top).rglob("*") if p.suffix in SOURCES and p.is_file())


def check(root):
    """All complaints, and the files looked at."""
    complaints, files, types = [], [], {}
    for file in sources_of(root):
        files.append(file)
        path = file.relative_to(root).as_posix()
        if folder_of(path) is None:
            complaints.append(f"{path}: belongs to no layer; add its folder to the table in tools/check_layers.py")
            continue
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, name in types_of(lines) if not ALTERNATIVES.fullmatch(path) else ():
            if types.setdefault(name, path) != path:
                complaints.append(f"{path}:{number}: {name} is a type in {types[name]} as well; one of them needs another name")
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            problem = complaint(root, path, match.group(1), match.group(2)) if match else None
            if problem:
                complaints.append(f"{path}:{number}: {problem}")
    return complaints, files


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--stamp", type=pathlib.Path, help="written when all is well")
    parser.add_argument("--depfile", type=pathlib.Path, help="what the stamp depends on, for the build")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    complaints, files = check(root)
    if complaints:
        print("\n".join(complaints), file=sys.stderr)
        return 1
    if not files:
        print(f"{root} has no sources to check", file=sys.stderr)
        return 1
    if arguments.depfile and arguments.stamp:
        # The folders too: a new file changes its folder.
        needs = sorted({str(file) for file in files} | {str(file.parent) for file in files})
        escaped = [need.replace(" ", "\\ ") for need in needs]
        arguments.depfile.write_text(f"{arguments.stamp}: " + " \\\n  ".join(escaped) + "\n", encoding="utf-8")
    if arguments.stamp:
        arguments.stamp.write_text(f"{len(files)} files\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
