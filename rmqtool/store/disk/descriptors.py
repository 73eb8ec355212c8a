"""How many files this process may open."""

import resource
from contextlib import suppress


def raise_open_files(wanted: int) -> None:
    """Let this process, and those that it starts, open that many files at a time, or as many as they may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
