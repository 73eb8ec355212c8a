"""That tests of a group share a process, in a whole run."""

import pytest


@pytest.mark.xdist_group("grouped")
def test_the_processes_of_a_whole_run_heed_groups(request: pytest.FixtureRequest) -> None:
    """Else every one of them starts brokers of its own, and a run takes twice as long."""
    if request.config.getoption("loadgroup", False):
        assert request.node.nodeid.endswith("@grouped")
