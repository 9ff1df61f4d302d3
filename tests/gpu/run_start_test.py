#!/usr/bin/env python3
"""How tests/gpu/run begins, with a stand-in for nvidia-smi: it holds the GPUs' files open from the start on, so that the driver does not end them between programs, and tells what the
machine is. It ends before it builds anything: its folder for that cannot be made.

    run_start_test.py
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

RUN = pathlib.Path(__file__).resolve().parent / 'run'
SMI = r'''#!/bin/sh
ls -l /proc/self/fd >>"$HELD"
case "$*" in
  -L) echo 'GPU 0: A "GPU" (UUID: GPU-0)' ;;
  *query-gpu=compute_cap*) echo 9.0 ;;
  *query-gpu=index,persistence_mode*) echo '0, Disabled' ;;
  *query-gpu=*) echo 'Field "pstate" is not a valid field to query.'; exit 2 ;;
  *PERFORMANCE*) printf '        SW Power Cap                      : Active\n        HW Slowdown                       : Not Active\n' ;;
  *) exit 1 ;;
esac
'''


def begin(folder, nodes):
    held = pathlib.Path(folder, 'held')
    held.write_text('')
    env = os.environ | {'PATH': f'{folder}/bin:{os.environ["PATH"]}', 'HELD': str(held), 'HEDDLE_GPU_NODES': nodes}
    done = subprocess.run(['bash', str(RUN), '--build', '/proc/none/build'], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    assert done.returncode == 1 or 'skipped: there is no nvcc' in done.stdout or 'skipped: the headers' in done.stdout, done
    return done.stdout, held.read_text()


def main():
    with tempfile.TemporaryDirectory() as folder:
        smi = pathlib.Path(folder, 'bin/nvidia-smi')
        smi.parent.mkdir()
        smi.write_text(SMI)
        smi.chmod(0o755)
        for k in (0, 3):
            pathlib.Path(folder, f'gpu{k}').write_text('')
        pathlib.Path(folder, 'gpuctl').write_text('')
        said, held = begin(folder, f'{folder}/gpu')
        calls = held.count('total ')
        for k in (0, 3):
            assert calls > 3 and held.count(f'{folder}/gpu{k}\n') == calls, f'gpu{k} is not held open in each call\n{held}'
        assert f'{folder}/gpuctl' not in held, held
        for line in (f'^{re.escape(" ".join((os.uname().sysname, os.uname().release)))}$', '^GPU 0: persistence_mode Disabled$', '^performance: SW Power Cap$'):
            assert re.search(line, said, re.MULTILINE), f'{line} is not in\n{said}'
        assert 'HW Slowdown' not in said and 'not a valid field' not in said, said
        # No such files, and no file at all.
        for nodes in (f'{folder}/none', '/dev/nvidia'):
            said, _ = begin(folder, nodes)
            assert 'GPU 0: persistence_mode Disabled' in said, said
    return 0


if __name__ == '__main__':
    sys.exit(main())
