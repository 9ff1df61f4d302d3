"""A virtual machine with an RDMA stack of its own (Soft-RoCE), for tests: this machine's kernel needs none.

QEMU boots Debian's kernel in software emulation. Its root is this machine's, read-only, with a layer of memory over it: what is
installed and built here is there. Everything it needs is kept in one folder, and nothing is installed.
"""
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import time

PACKAGES = {'qemu-system-x86_64': 'qemu-system-x86', 'busybox': 'busybox-static', 'modprobe': 'kmod', 'depmod': 'kmod',
            'ibv_devinfo': 'ibverbs-utils', 'rdma': 'iproute2', 'cpio': 'cpio'}
# rdma_rxe wants the checksum under the name that the generic module alone gives it.
MODULES = ['crc32_generic', 'virtio_pci', '9pnet_virtio', '9p', 'overlay', 'veth', 'tcp_cubic', 'rdma_rxe', 'ib_uverbs']
RESULT = re.compile(r'MACHINE RESULT (\d+)')

INIT = '''#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /below /above /new
/bin/busybox mount -t proc none /proc
/bin/busybox mount -t sysfs none /sys
/bin/busybox mount -t devtmpfs none /dev
for module in {modules}; do
  /bin/busybox insmod /modules/$module || echo "MACHINE: module $module does not load"
done
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=512000,cache=loose root /below || echo "MACHINE: no root over 9p"
/bin/busybox mount -t tmpfs -o size=60% none /above
/bin/busybox mkdir /above/files /above/work
/bin/busybox mount -t overlay -o lowerdir=/below,upperdir=/above/files,workdir=/above/work none /new || echo "MACHINE: no overlay"
cd /new
/bin/busybox mount -t proc none proc
/bin/busybox mount -t sysfs none sys
/bin/busybox mount -t devtmpfs none dev
/bin/busybox mount -t tmpfs none run
/bin/busybox mkdir -p dev/shm run/home
/bin/busybox mount -t tmpfs none dev/shm
/bin/busybox ip link set lo up
/bin/busybox hostname machine
ulimit -l unlimited
echo "MACHINE UP"
/bin/busybox chroot /new /usr/bin/env -i HOME=/run/home PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHONDONTWRITEBYTECODE=1 {command}
echo "MACHINE RESULT $?"
/bin/busybox poweroff -f
'''


class Missing(Exception):
    """What this machine lacks, and the way out, in one line."""


def _run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **options)
    if done.returncode != 0:
        said = done.stderr.decode(errors='replace').strip().splitlines()
        raise Missing(f'{" ".join(command[:2])}: {said[-1] if said else f"status {done.returncode}"}')
    return done.stdout


def _find_programs():
    path = os.environ.get('PATH', '') + ':/usr/sbin:/sbin'
    for program, package in PACKAGES.items():
        if shutil.which(program, path=path) is None:
            raise Missing(f'{program} is not there: install {package}')
    linked = subprocess.run(['ldd', shutil.which('busybox')], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout
    if b'=>' in linked:
        raise Missing('busybox needs shared libraries: install busybox-static')


def _kernel_package():
    for line in _run('apt-cache', 'depends', 'linux-image-amd64').decode().splitlines():
        if 'Depends: linux-image-' in line:
            return line.split()[-1]
    raise Missing('apt-cache knows no linux-image-amd64: apt-get update')


def _modules_in_order(tree, release):
    files = []
    for module in MODULES:
        shown = subprocess.run(['modprobe', '-d', tree, '-S', release, '--show-depends', module], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True, check=False)
        for line in shown.stdout.splitlines():
            words = line.split()
            if words[0] == 'insmod' and words[1] not in files:
                files.append(words[1])
    return files


def prepare(folder):
    """Makes folder/kernel and folder/modules, unless they are there; Missing where that cannot be."""
    folder = pathlib.Path(folder)
    _find_programs()
    if (folder / 'ready').exists():
        return folder
    package = _kernel_package()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _run('apt-get', 'download', package, cwd=folder)
    archive = next(folder.glob('*.deb'))
    tree = folder / 'tree'
    tree.mkdir()
    _run('sh', '-c', f'dpkg-deb --fsys-tarfile {archive.name} | tar -x -C tree ./boot ./lib/modules', cwd=folder)
    release = next((tree / 'lib/modules').iterdir()).name
    _run('depmod', '-b', str(tree), release)
    (folder / 'modules').mkdir()
    order = _modules_in_order(str(tree), release)
    for path in order:
        shutil.copy(path, folder / 'modules')
    (folder / 'order').write_text('\n'.join(pathlib.Path(p).name for p in order))
    shutil.copy(tree / 'boot' / f'vmlinuz-{release}', folder / 'kernel')
    shutil.rmtree(tree)
    archive.unlink()
    (folder / 'ready').write_text(release)
    return folder


def _initramfs(folder, command):
    tree = folder / 'initramfs'
    shutil.rmtree(tree, ignore_errors=True)
    (tree / 'bin').mkdir(parents=True)
    shutil.copy(shutil.which('busybox'), tree / 'bin')
    shutil.copytree(folder / 'modules', tree / 'modules')
    init = tree / 'init'
    init.write_text(INIT.format(modules=' '.join((folder / 'order').read_text().split()), command=command))
    init.chmod(0o755)
    names = '\n'.join(str(p.relative_to(tree)) for p in sorted(tree.rglob('*')))
    archive = _run('cpio', '-o', '-H', 'newc', '--quiet', cwd=tree, input=names.encode())
    (folder / 'initrd').write_bytes(gzip.compress(archive, 1))


def _qemu(folder, console):
    # A file: with its input at an end, a serial line on stdio loses output now and then.
    return ['qemu-system-x86_64', '-accel', 'tcg,thread=multi', '-cpu', 'max', '-smp', '2', '-m', '2048', '-nodefaults',
            '-no-user-config', '-display', 'none', '-no-reboot', '-serial', f'file:{console}',
            '-kernel', str(folder / 'kernel'), '-initrd', str(folder / 'initrd'),
            '-append', 'console=ttyS0 quiet loglevel=4 panic=5 mitigations=off tsc=unstable no_timer_check',
            '-fsdev', 'local,id=root,path=/,security_model=none,readonly=on,multidevs=remap',
            '-device', 'virtio-9p-pci,fsdev=root,mount_tag=root']


def _follow(machine, console, deadline, show):
    """Shows the console's lines as they come, until the one with the result."""
    begin = time.monotonic()
    rest = ''
    with open(console, encoding='utf-8', errors='replace') as log:
        while True:
            alive = machine.poll() is None and time.monotonic() - begin < deadline
            lines = (rest + log.read()).replace('\r', '').split('\n')
            rest = lines[-1]
            for line in lines[:-1]:
                if (found := RESULT.match(line)) is not None:
                    return int(found.group(1))
                show(line)
            if not alive:
                return None
            time.sleep(0.1)


def run(folder, command, deadline, console, show):
    """Boots, runs a command line there and returns its exit status, or None where there was none within `deadline` seconds.

    The console is kept in the file `console`, and every line of it given to show(line). QEMU does not survive this function.
    """
    folder = pathlib.Path(folder)
    _initramfs(folder, command)
    pathlib.Path(console).write_text('')
    with subprocess.Popen(_qemu(folder, console), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as machine:
        try:
            return _follow(machine, console, deadline, show)
        finally:
            machine.kill()
