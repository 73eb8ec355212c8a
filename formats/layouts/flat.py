"""A fixed-size layout in the form that scans: one precompiled struct, and its NumPy dtype on demand.

Instances are written by ``formats.layouts.derive`` from the construct declarations; this module must stay free of
construct and NumPy at import, because commands that look up one message start without either.
"""

import struct
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

_KINDS = {"q": "i8", "i": "i4", "h": "i2", "b": "i1"}


class Flat:
    """A flat, fixed-size, big-endian layout.

    Args:
        name: what one such unit is called.
        fields: (field name, struct code) in order; codes are ``q i h b`` and ``<n>s``.
    """

    def __init__(self, name: str, fields: tuple[tuple[str, str], ...]) -> None:
        self.name = name
        self.fields = fields
        self.names = tuple(field for field, _ in fields)
        self.struct = struct.Struct(">" + "".join(code for _, code in fields))
        self.size = self.struct.size
        self.unpack_from = self.struct.unpack_from
        self.pack = self.struct.pack
        self.iter_unpack = self.struct.iter_unpack
        self.offsets: dict[str, int] = {}
        at = 0
        for field, code in fields:
            self.offsets[field] = at
            at += struct.calcsize(">" + code)

    def field(self, *names: str) -> struct.Struct:
        """A struct that reads one field alone, or several in their order; ``unpack_from`` takes where the unit begins.

        Raises:
            ValueError: they are in another order than in the layout.
        """
        codes, at = [">"], 0
        for name in names:
            code = dict(self.fields)[name]
            if (between := self.offsets[name] - at) < 0:
                raise ValueError(f"{self.name}: {name} comes before another one that is asked for")
            codes.append(f"{between}x{code}")
            at = self.offsets[name] + struct.calcsize(">" + code)
        return struct.Struct("".join(codes))

    @cached_property
    def dtype(self) -> "np.dtype[Any]":
        """The same layout as a packed NumPy record type."""
        import numpy as np

        return np.dtype([(n, f"V{c[:-1]}" if c.endswith("s") else f">{_KINDS[c]}") for n, c in self.fields])

    def as_dict(self, buffer: Any, at: int = 0) -> dict[str, Any]:
        """Field name to value of the unit at ``at``."""
        return dict(zip(self.names, self.unpack_from(buffer, at), strict=True))
