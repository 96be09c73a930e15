"""The compiled parts of interlock and its page for the package index; everything else stands in pyproject.toml.

With INTERLOCK_PURE=1 they are left out, and the wheel is one for all platforms.  With SOURCE_DATE_EPOCH the same
sources make the same files, byte for byte.
"""

import gzip
import os
import re
import sysconfig
import tarfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.sdist import sdist

PAGES = "https://github.com/interlock-py/interlock/blob/main/"

# One build for all Pythons; a free-threaded one has no stable ABI before 3.15, and gets a build of its own.
STABLE = not sysconfig.get_config_var("Py_GIL_DISABLED")


def compiled(name: str) -> Extension:
    """Describe a part that is left out where there is no compiler: then Python code does the same."""
    return Extension(
        name,
        [f"src/{name.replace('.', '/')}.c"],
        define_macros=[("_GNU_SOURCE", "1")],
        extra_compile_args=["-O2", "-g0"],  # what is for debuggers would name the folder of the build
        py_limited_api=STABLE,
        optional=True,
    )


class SameSdist(sdist):
    """A source distribution without clocks, users and the order of folders in it."""

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, owner=None, group=None):
        """Make the archive; with SOURCE_DATE_EPOCH, of files of that time."""
        date = os.environ.get("SOURCE_DATE_EPOCH")
        if date is None or format != "gztar":
            return super().make_archive(base_name, format, root_dir, base_dir, owner, group)

        def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = int(date), 0, 0, "", ""
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            return entry

        path = f"{base_name}.tar.gz"
        with (
            open(path, "wb") as raw,
            gzip.GzipFile("", "wb", mtime=int(date), fileobj=raw) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            archive.add(Path(root_dir or ".") / base_dir, base_dir, filter=plain)  # in the order of the names
        return path


# The page of the package index is README.md, and knows no files beside it.
README = re.sub(r"\]\((?![a-z]+:|#)", f"]({PAGES}", Path(__file__).with_name("README.md").read_text(encoding="utf-8"))
ABOUT = {"long_description": README, "long_description_content_type": "text/markdown"}

if os.environ.get("INTERLOCK_PURE") == "1":
    setup(**ABOUT, cmdclass={"sdist": SameSdist})
else:
    setup(
        **ABOUT,
        cmdclass={"sdist": SameSdist},
        ext_modules=[compiled("interlock.stores.files._fast_path")],
        options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE else {},
    )
