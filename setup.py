"""The compiled parts of interlock and its page for the package index; everything else stands in pyproject.toml.

With INTERLOCK_PURE=1 they are left out, and the wheel is one for all platforms.
"""

import os
import re
import sysconfig
from pathlib import Path

from setuptools import Extension, setup

PAGES = "https://github.com/interlock-py/interlock/blob/main/"

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


# The page of the package index is README.md, and knows no files beside it.
README = re.sub(r"\]\((?![a-z]+:|#)", f"]({PAGES}", Path(__file__).with_name("README.md").read_text(encoding="utf-8"))
ABOUT = {"long_description": README, "long_description_content_type": "text/markdown"}

if os.environ.get("INTERLOCK_PURE") == "1":
    setup(**ABOUT)
else:
    setup(
        **ABOUT,
        ext_modules=[compiled("interlock.stores.files._quick")],
        options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE else {},
    )
