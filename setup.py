"""Compiles the hot loops. Without a C compiler the install still succeeds, only slower."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCES = sorted(Path("src").rglob("*.pyx"))


def _extension(source: Path) -> Extension:
    name = ".".join(source.with_suffix("").parts[1:])
    return Extension(name, [str(source)], extra_compile_args=["-O3", "-g0"])


EXTENSIONS = cythonize([_extension(source) for source in SOURCES], language_level=3)
for extension in EXTENSIONS:
    extension.optional = True  # said here, because cythonize makes extensions of its own

setup(ext_modules=EXTENSIONS)
