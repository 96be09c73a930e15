"""The compiled parts of interlock; everything else about the package stands in pyproject.toml."""

from setuptools import Extension, setup


def compiled(name: str) -> Extension:
    """Describe a part that is left out where there is no compiler: then Python code does the same."""
    return Extension(
        name,
        [f"src/{name.replace('.', '/')}.c"],
        define_macros=[("_GNU_SOURCE", "1")],
        extra_compile_args=["-O2"],
        py_limited_api=True,
        optional=True,
    )


setup(
    ext_modules=[compiled("interlock.stores.files._quick")],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
