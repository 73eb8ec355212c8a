"""Both kinds of code that kernels run by; one list of cases drives both."""

import pytest

from rmqtool.kernels.load.library import Code

both = pytest.mark.parametrize("code", list(Code), ids=lambda code: code.value)
