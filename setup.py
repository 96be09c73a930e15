"""The compiled parts of interlock; everything else about the package stands in pyproject.toml.

With INTERLOCK_PURE=1 they are left out, and the wheel is one for all platforms.
"""

import os
import sysconfig

from setuptools import Extension, setup

# One build for all Pythons; a free-threaded one has no stable ABI before 3.15, and gets a build of its own.
STABLE = not sysconfig.get_config_var("Py_GIL_DISABLED")


def compiled(name: str) -> Extension:
    """Describe a part that is left out where there is no compiler: then Python code does the same."""
    return Extension(
        name,
        [f"src/{name.replace('.', '/')}.c"],
        define_macros=[("_GNU_SOURCE", "1")],
        extra_compile_args=["-O2"],
        py_limited_api=STABLE,
        optional=True,
    )


if os.environ.get("INTERLOCK_PURE") == "1":
    setup()
else:
    setup(
        ext_modules=[compiled("interlock.stores.files._quick")],
        options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE else {},
    )
