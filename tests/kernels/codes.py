"""Both implementations of the kernels; the same cases run on both."""

import pytest

from rmqtool.kernels.load.library import Implementation

both = pytest.mark.parametrize("code", list(Implementation), ids=lambda code: code.value)
