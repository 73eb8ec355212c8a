"""How long a broker keeps messages unless its configuration says otherwise (``fileReservedTime``)."""

HOUR = 3_600_000  # ms
DEFAULT_RESERVED_HOURS = 72
