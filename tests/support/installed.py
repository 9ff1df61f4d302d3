"""What `meson install` makes of a build, somewhere else than where it was configured for."""
import contextlib
import pathlib
import shutil
import subprocess
import tempfile


@contextlib.contextmanager
def installed(build, prefix):
    """The folder that holds what would lie under `prefix`, moved; it goes at the end."""
    build = pathlib.Path(build)
    log = build / "meson-logs" / "install-log.txt"  # `ninja uninstall` goes by it, and is not to be led astray
    earlier = log.read_bytes() if log.exists() else None
    with tempfile.TemporaryDirectory() as folder:
        stage, tree = pathlib.Path(folder, "stage"), pathlib.Path(folder, "moved tree")
        try:
            done = subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", stage], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, encoding="utf-8", check=False)
        finally:
            if earlier is None:
                log.unlink(missing_ok=True)
            else:
                log.write_bytes(earlier)
        assert done.returncode == 0, done.stdout
        shutil.move(stage / pathlib.Path(prefix).relative_to("/"), tree)
        yield tree
