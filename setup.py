"""Compiles the hot loops. Without a C compiler the install still succeeds, only slower."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCES = sorted(Path("src").rglob("*.pyx"))


def _extension(source: Path) -> Extension:
    name = ".".join(source.with_suffix("").parts[1:])
    return Extension(name, [str(source)], extra_compile_args=["-O3"], optional=True)


setup(ext_modules=cythonize([_extension(source) for source in SOURCES], language_level=3))
