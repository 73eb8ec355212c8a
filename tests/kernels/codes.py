"""Both implementations of the kernels; the same cases run on both."""

import pytest

from rmqtool.kernels.load.library import Code

both = pytest.mark.parametrize("code", list(Code), ids=lambda code: code.value)
