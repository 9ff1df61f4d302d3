#!/usr/bin/env python3
"""What the benchmarks of osu_style_bench measured on a GPU beside the targets of tests/gpu/run, in lines as goals.hpp prints them.

    bench_goals.py [--json FILE] RESULT.json ...

--json adds the measurements to that file, which tests/gpu/run's other programs began. Files named *_mps.json were measured where MPS served the processes. Exit status 1 where a result is missing or wrong.
"""
import argparse
import json
import pathlib
import sys

BYTES = 64 << 20


def goal(what, measured, least):
    print(f'goal: {what:<74} {measured:8.2f}, wanted {f">= {least}":<12} {"reached" if measured >= least else "MISSED"}')


def dense(result, where):
    """Rows of --vs staged, and the goal of its longest vector. `where`: what is said of the machine."""
    rows = [{'bytes': row['bytes'], 'heddle_us': row['heddle']['median_us'], 'staged_us': row['host']['median_us'], 'staged_over_heddle': row['ratio'], 'ci95': row['ratio_ci95']}
            for row in result['rows']]
    for row in rows:
        if row['bytes'] == BYTES:
            goal(f'{result["ranks"]} processes by MPI{where}, allreduce of 64 MiB: staged over heddle', row['staged_over_heddle'], 5.9)
    return 'staged_' + result['program'], rows


def sparse(result, where):
    dimension = result['settings']['dimension']
    rows = [{'dimension': dimension, 'density_percent': row['density_percent'], 'sparse_us': row['sparse']['median_us'], 'dense_us': row['dense']['median_us'],
             'dense_over_sparse': row['dense_over_sparse']['ratio'], 'ci95': row['dense_over_sparse']['ratio_ci95'], 'algorithm': row['algorithm']} for row in result['rows']]
    for row in rows:
        if row['density_percent'] == 1 and dimension == 1 << 24:
            goal(f'{result["ranks"]} processes by MPI{where}, 2^24 elements, 1%: dense over sparse', row['dense_over_sparse'], 3)
    return result['program'], rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--json', type=pathlib.Path)
    parser.add_argument('results', nargs='+', type=pathlib.Path)
    arguments = parser.parse_args()
    right = True
    found = {}
    for path in arguments.results:
        if not path.exists():
            print(f'{path.name}: not there')
            right = False
            continue
        result = json.loads(path.read_text())
        mps = path.stem.endswith('_mps')
        name, rows = (sparse if 'sparse' in result['program'] else dense)(result, ' under MPS' if mps else '')
        name += '_mps' if mps else ''
        found.setdefault(name, []).extend(rows)
        wrong = [row for row in result['rows'] if row.get('valid') is False]
        if wrong or not rows:
            print(f'{path.name}: {len(wrong)} of {len(rows)} rows are wrong')
            right = False
    if arguments.json:
        whole = json.loads(arguments.json.read_text()) if arguments.json.exists() else {}
        arguments.json.write_text(json.dumps(whole | found, indent=2) + '\n')
    return 0 if right else 1


if __name__ == '__main__':
    sys.exit(main())
