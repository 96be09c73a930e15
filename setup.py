"""The compiled part of interlock; everything else about the package stands in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "interlock.stores.files._quick",
            ["src/interlock/stores/files/_quick.c"],
            define_macros=[("_GNU_SOURCE", "1")],
            extra_compile_args=["-O2"],
            py_limited_api=True,
            optional=True,  # without a compiler the same is done by quick.py
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
