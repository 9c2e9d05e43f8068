"""The limit of files and connections that this process may have open."""

import resource
import sys


def descriptors_max() -> int:
    """Return the soft limit, which the kernel enforces."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def raise_descriptors_max() -> None:
    """Raise the soft limit to the hard one, as the JVM does; for processes of our own.

    The soft limit is often 1,024, for the sake of programs that call `select`. We do not.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
