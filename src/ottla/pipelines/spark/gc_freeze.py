"""Keeps Spark's Python processes from looking through all of their objects after each task."""

import gc
import os
from functools import cache
from typing import Final

_COLLECTS: Final = "SPARK_REUSE_WORKER"
"""Set by Spark in processes that serve one task after another, with a collection after each."""


@cache
def spare_what_is_there(caller: str) -> None:
    """Leave the objects of now out of further collections, once for each caller with its imports.

    A collection looks at everything that PySpark, Arrow and we have imported, which takes longer
    than the tasks of a micro-batch. What is spared still goes when nobody refers to it any more;
    only rings stay that are garbage at this very moment. Other processes than Spark's are left as
    they are.
    """
    del caller
    if os.environ.get(_COLLECTS):
        gc.freeze()
