"""Names for the types of NumPy arrays, for modules that load NumPy anyway or only check types."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Column = Array
"""One value of each record, entry or unit."""
Units = Array
"""Records, entries or units, with the dtype of their layout."""
