"""Queue assignment by a broker, by the rules of 5.3.3."""

from hypothesis import given
from hypothesis import strategies as st

from rmqtool.rules.broadcast import QueueName
from rmqtool.rules.rebalance import averagely
from rmqtool.services.popping.assigning import ANY, Mode, assign

QUEUES = [QueueName("T", broker, queue_id) for broker in ("a", "b") for queue_id in range(4)]


def given_to(client: str, clients: list[str], mode: Mode) -> list[QueueName]:
    assigned = assign(list(reversed(QUEUES)), client, clients, mode, strategy="AVG")
    assert assigned is not None
    return assigned


def test_clients_that_pull_share_the_queues() -> None:
    shares = [given_to(client, ["y", "x", "z"], Mode("PULL", 0)) for client in "xyz"]
    assert [len(share) for share in shares] == [3, 3, 2]
    assert sorted(queue for share in shares for queue in share) == QUEUES
    assert shares[0] == averagely("x", QUEUES, ["x", "y", "z"])


def test_clients_that_pop_all_have_one_entry_for_each_broker() -> None:
    for share in (0, -1):
        assert given_to("x", ["x", "y"], Mode("POP", share)) == [QueueName("T", "a", ANY), QueueName("T", "b", ANY)]


def test_clients_that_pop_have_the_queues_of_those_behind_them_too() -> None:
    clients = ["w", "x", "y", "z"]
    assert given_to("w", clients, Mode("POP", 1)) == QUEUES[:4]
    assert given_to("z", clients, Mode("POP", 1)) == QUEUES[6:] + QUEUES[:2]  # behind the last is the first
    assert given_to("w", [f"c{n}" for n in range(9)] + ["w"], Mode("POP", 1)) == [QUEUES[9 % 8]]
    assert given_to("nobody", clients, Mode("POP", 1)) == []


def test_what_there_is_no_answer_for() -> None:
    assert assign(QUEUES, "x", None, Mode("PULL", 0), strategy="AVG") is None
    assert assign(QUEUES, "x", ["x"], Mode("PULL", 0), strategy="OWN") is None
    assert assign(QUEUES, "", ["x"], Mode("PULL", 0), strategy="AVG") is None
    assert assign(QUEUES, "x", None, Mode("PULL", 0), strategy=None, broadcast=True) == QUEUES


@given(st.integers(1, 20), st.integers(-1, 6), st.sampled_from(["PULL", "POP"]))
def test_no_queue_is_without_a_client(count: int, share: int, mode: str) -> None:
    clients = [f"c{number:02d}" for number in range(count)]
    got = {queue for client in clients for queue in given_to(client, clients, Mode(mode, share))}
    if mode == "POP" and share <= 0:
        assert got == {QueueName("T", broker, ANY) for broker in "ab"}
    else:
        assert got == set(QUEUES)
