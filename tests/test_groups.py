"""In a full run, the tests of a group share a process."""

import pytest


@pytest.mark.xdist_group("grouped")
def test_the_processes_of_a_whole_run_heed_groups(request: pytest.FixtureRequest) -> None:
    """Otherwise each process starts its own brokers, and a run takes twice as long."""
    if request.config.getoption("loadgroup", False):
        assert request.node.nodeid.endswith("@grouped")
