#!/usr/bin/env python3
"""A rank whose buffer another of its threads unmaps dies of it, as it would without heddle; the others are told who is gone, and end."""
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / 'support'))
import native_ranks  # noqa: E402


def main():
    (first, first_said), (second, second_said), (third, third_said) = native_ranks.run(sys.argv[1:], size=3, timeout=100)
    found = []
    # A sanitizer catches the signal, says so and exits.
    if second != -signal.SIGSEGV and 'SEGV' not in second_said:
        found.append(f'rank 1 did not die of its own mistake: status {second}, {second_said}')
    for rank, status, said in ((0, first, first_said), (2, third, third_said)):
        if status != 3 or 'rank 1 (process' not in said or 'is gone' not in said:
            found.append(f'rank {rank} was not told: status {status}, {said}')
    print('\n'.join(found) or 'as it should be: ' + first_said.strip())
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
