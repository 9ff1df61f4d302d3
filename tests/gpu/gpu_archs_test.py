#!/usr/bin/env python3
"""Which GPUs kernels are compiled for, by -Dgpu_archs in any order: all machine code comes from the PTX for the oldest, and 100 is later than 90.

    gpu_archs_test.py SOURCE_FOLDER
"""
import pathlib
import re
import subprocess
import sys
import tempfile


def commands(source, archs):
    """Of a build that is set up for them."""
    with tempfile.TemporaryDirectory() as folder:
        build = pathlib.Path(folder, 'build')
        asked = [f'-Dgpu_archs={archs}', '-Dtests=false', '-Dcuda=enabled', '-Dmpich=disabled', '-Dopen_mpi=disabled', '-Dman=disabled']
        done = subprocess.run(['meson', 'setup', build, source, *asked], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout
        return (build / 'build.ninja').read_text()


def main():
    text = commands(sys.argv[1], '100,90,80,90')
    bases = set(re.findall(r'-arch=compute_(\w+)', text))
    assert bases == {'80'}, f'PTX is for {bases}'
    codes = set(re.findall(r'arch=compute_80,code=\[compute_80,([\w,]+)\]', text))
    assert codes in ({'sm_80,sm_90,sm_100'}, {'sm_80,sm_90'}), f'machine code is for {codes}'  # as nvcc knows them
    return 0


if __name__ == '__main__':
    sys.exit(main())
