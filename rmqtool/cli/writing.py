"""Which commands change something, so that an answer that nobody has read is no success of theirs."""

WRITING = {
    *(
        "append",
        "clean",
        "dispatch",
        "dump-to-parquet",
        "export",
        "import",
        "init",
        "mirror",
        "rebuild",
        "recover",
        "replay",
        "run",
    ),
    *("salvage", "truncate", "undo", "warm-up"),
    *("dlq requeue", "group clone", "group reset"),
}


def writes(argv: list[str]) -> bool:
    """Whether a command line is that of one, and not of a dry run."""
    words = [word for word in argv if not word.startswith("-")]
    named = {" ".join(words[:count]) for count in (1, 2)}
    return bool(named & WRITING) and "--dry-run" not in argv
