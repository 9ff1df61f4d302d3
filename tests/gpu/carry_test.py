#!/usr/bin/env python3
"""Whether what tests/gpu/carry packs is whole: a benchmark and an MPI job run from the unpacked folder, on the double of CUDA's driver, with heddle and MPICH from nowhere else.

    carry_test.py BUILD LIBCUDA
"""
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def run(*command, **env):
    done = subprocess.run(command, env=os.environ | env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 0, f'{command}: {done.returncode}\n{done.stdout}'
    return done.stdout


def main():
    build, double = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        packed = os.path.join(folder, 'carried.tar.gz')
        assert re.search(r'carried.tar.gz: \d+ MiB', run(str(HERE / 'carry'), '--build', build, '--to', packed))
        with tarfile.open(packed) as archive:
            archive.extractall(folder)
        stamp = pathlib.Path(folder, 'stamp').read_text()
        assert re.fullmatch(r'[0-9a-f]{64}\n', stamp) and stamp == run(str(HERE / 'carry'), '--stamp'), stamp
        env = {'LD_LIBRARY_PATH': f'{folder}/lib:{os.path.dirname(double)}', 'HYDRA_LAUNCHER': 'fork'}
        ours = run('ldd', f'{folder}/lib/heddle/libheddle_backend_mpich.so', f'{folder}/bin/heddle_allreduce', **env)
        for name in ('libheddle.so', 'libmpich.so', 'libhwloc.so', 'libucp.so', 'libstdc++.so'):
            assert re.search(rf'{re.escape(name)}\S* => {folder}/', ours), f'{name} is not from the folder\n{ours}'
        two = [f'{folder}/bin/mpiexec.hydra', '-n', '2']
        text = run(*two, f'{folder}/bin/heddle_allreduce', '-d', 'cuda', '--vs', 'staged', '-m', '64:64', '-c', '--rounds', '6', '--max-seconds', '0.05', **env)
        assert re.search(r'^64 .* Pass ', text, re.MULTILINE), text
        says = run(*two, 'env', f'LD_PRELOAD={folder}/lib/libheddle_preload.so', 'HEDDLE_LOG=info', f'{folder}/tests/gpu_mpi_job', double, 'conform', **env)
        assert 'transports: shm' in says, says
    missing = subprocess.run([str(HERE / 'carry'), '--build', '/nonexistent'], capture_output=True, text=True)
    assert missing.returncode == 1 and '/nonexistent has no tests/gpu/gpu_mpi_job' in missing.stderr, missing
    return 0


if __name__ == '__main__':
    sys.exit(main())
