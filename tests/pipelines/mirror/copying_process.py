"""A process that mirrors without Spark, in very short transactions, until it is killed.

python -m tests.pipelines.mirror.copying_process SOURCE TARGET TOPIC
"""

import asyncio
import sys

from ottla.clients.errors import RETRIABLE
from ottla.model.api_error import ApiError
from ottla.pipelines.mirror import copying
from ottla.pipelines.mirror.options import MirrorOptions
from ottla.pipelines.mirror.running import Following
from tests.pipelines.mirror.mirroring import copy_all, options_of

TRANSACTION_BYTES = 20_000


def main() -> None:
    source, target, topic = sys.argv[1:]
    copying.TRANSACTION_BYTES_MAX = TRANSACTION_BYTES  # type: ignore[misc]
    options = options_of(source, target, topic, range_bytes=200_000)
    with Following(options) as following:
        sys.stdout.write("copying\n")
        sys.stdout.flush()
        while True:
            copy_once(options, following)


def copy_once(options: MirrorOptions, following: Following) -> None:
    """Copy all new records, unless a cluster is unavailable, which may be temporary."""
    try:
        asyncio.run(copy_all(options))
        following.follow()
    except OSError as error:
        sys.stderr.write(f"{error}\n")
    except ApiError as error:
        if error.code not in RETRIABLE:
            raise
        sys.stderr.write(f"{error}\n")


if __name__ == "__main__":
    main()
