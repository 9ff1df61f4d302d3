#!/usr/bin/env python3
"""What the two libraries export and need: the preload library is loaded into other people's processes."""
import re
import subprocess
import sys

FUNCTIONS = ['Allgather', 'Allgather_c', 'Alloc_mem', 'Allreduce', 'Allreduce_c', 'Barrier', 'Bcast', 'Bcast_c', 'Comm_disconnect', 'Comm_free', 'Finalize', 'Free_mem', 'Reduce', 'Reduce_c']
# Looked at for buffers on GPUs: with a request, without, with one that is persistent, and with large counts; and what starts and ends requests.
BOTH = ['Alltoall', 'Bsend', 'Exscan', 'Gather', 'Mrecv', 'Neighbor_allgather', 'Neighbor_alltoall', 'Recv', 'Reduce_scatter_block', 'Rsend',
        'Scan', 'Scatter', 'Send', 'Ssend']
REQUESTS = BOTH + ['Allgather', 'Allreduce', 'Bcast', 'Reduce']
STAGED = BOTH + ['Sendrecv', 'Sendrecv_replace'] + ['I' + name.lower() for name in REQUESTS] + [name + '_init' for name in REQUESTS if name != 'Mrecv']
ARRAYS = ['Allgatherv', 'Alltoallv', 'Alltoallw', 'Gatherv', 'Neighbor_allgatherv', 'Neighbor_alltoallv', 'Neighbor_alltoallw', 'Reduce_scatter',
          'Scatterv']  # their large-count forms stay the host's
ENDS = ['Start', 'Startall', 'Wait', 'Waitall', 'Waitany', 'Waitsome', 'Test', 'Testall', 'Testany', 'Testsome', 'Request_free', 'Request_get_status',
        'Request_get_status_all', 'Request_get_status_any', 'Request_get_status_some']
PRELOAD = {prefix + name for name in FUNCTIONS for prefix in ('MPI_', 'PMPI_')} | {'MPI_' + name + form for name in STAGED for form in ('', '_c')}
PRELOAD |= {'MPI_' + name for name in ENDS + ARRAYS} | {'MPI_I' + name.lower() for name in ARRAYS} | {f'MPI_{name}_init' for name in ARRAYS} | {'heddle_preload_version', 'heddle_preload_algorithm'}
BACKEND = {'heddle_backend_open'}


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def exported(library):
    return {line.split()[-1].split('@')[0] for line in output('nm', '-D', '--defined-only', library).splitlines()}


def needed(library):
    return set(re.findall(r'\(NEEDED\).*\[(.*)\]', output('readelf', '-d', library)))


def main():
    preload, backend, *linked = sys.argv[1:]
    found = []
    for library, wanted in ((preload, PRELOAD), (backend, BACKEND)):
        if exported(library) != wanted:
            found.append(f'{library} exports {sorted(exported(library) ^ wanted)} too much or too little')
    extra = {name for name in needed(preload) if not re.match(r'lib(c|dl)\.so|ld-linux', name)}
    if extra:
        found.append(f'{preload} needs {sorted(extra)}')
    wrong = {name for name in needed(backend) if re.search('mpi|hwy', name)} ^ set(linked)
    if wrong:
        found.append(f'{backend} needs {sorted(wrong)} too much or too little')
    # Found at run time, in the MPI that the process has: a name that the dynamic linker binds may be another MPI's.
    bound = [line.split()[-1] for line in output('nm', '-D', '--undefined-only', backend).splitlines() if re.search(r' P?MPI_', line)]
    if bound:
        found.append(f'{backend} leaves to the dynamic linker: {bound}')
    if re.search(r'\(INIT_ARRAY\)|\(FINI_ARRAY\)', output('readelf', '-d', preload)):
        sizes = re.findall(r'\((?:INIT|FINI)_ARRAYSZ\)\s+(\d+)', output('readelf', '-d', preload))
        # The compiler's own start-up files put one entry into each.
        if any(int(size) > 8 for size in sizes):
            found.append(f'{preload} has constructors or destructors')
    if 'NODELETE' not in output('readelf', '-d', backend):
        found.append(f'{backend} can be unloaded, although MPI has pointers into it')
    print('\n'.join(found) or 'as it should be')
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
