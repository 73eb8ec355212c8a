"""Send mutated frames, half frames and wrong lengths to a served store: ``python -m tests.interop.hostile``."""

import argparse
import random
import socket
import struct
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command, build
from rmqtool.remoting.signing import Credentials, sign
from tests.interop.serving import Serving

_NAMES = (
    "topic", "queueId", "queueOffset", "consumerGroup", "a", "b", "c", "d", "e", "i", "maxMsgNums", "sysFlag", "group",
)  # fmt: skip
_VALUES = ("0", "-1", str(1 << 63), "x", "Orders", "")
_WHOLE = {"a": "g", "b": "Orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
_LENGTHS = (-1, 0, 3, 1 << 24, (1 << 31) - 1)
_ASKED = Command(RequestCode.GET_BROKER_RUNTIME_INFO, opaque=5)
_ADMIN, _NOBODY = Credentials("the-admin", "admin-secret"), Credentials("the-nobody", "nobody-secret")
_ACCOUNTS = """
accounts:
- {accessKey: the-admin, secretKey: admin-secret, admin: true}
- {accessKey: the-nobody, secretKey: nobody-secret, defaultTopicPerm: DENY, defaultGroupPerm: DENY}
"""


@dataclass
class Met:
    """How the server coped. Sizes are KB, times are seconds.

    Attributes:
        lines: its log.
        begin, end: its memory after the first twentieth of the frames, and after all.
        slowest: slowest response to another client meanwhile.
        queues: queues that now have messages.
    """

    lines: list[str]
    begin: int = 0
    end: int = 0
    slowest: float = 0.0
    code: int = -1
    queues: int = 0


def hostile(random: random.Random, *, accounts: bool = False) -> bytes:
    """One frame or part of it; with accounts, some are signed by an account without rights, or almost correctly."""
    fields = {name: random.choice(_VALUES) for name in _NAMES}
    code = random.choice([*RequestCode, 9999])
    command = Command(code, fields=fields, body=random.randbytes(random.randrange(200)))
    if accounts and not random.randrange(5):  # one that would be carried out, were it allowed
        command = Command(RequestCode.SEND_MESSAGE_V2, fields=dict(_WHOLE), body=b"x")
    if accounts and (how := random.randrange(4)):
        command = sign(command, _NOBODY)
        assert command.fields is not None
        if how == 1:
            command.fields["Signature"] = random.choice(("", "x", command.fields["Signature"][:-1], "\ud800"))
        elif how == 2:
            command.fields["AccessKey"] = random.choice(("", "the-admin", "the-nobody ", "x" * 5000))
    data = bytearray(build(command))
    match random.randrange(4):
        case 0:
            for _ in range(random.randrange(1, 6)):
                data[random.randrange(len(data))] = random.randrange(256)
        case 1:
            del data[random.randrange(len(data)) :]
        case 2:
            data[:4] = struct.pack(">i", random.choice(_LENGTHS))
    return bytes(data)


def memory(pid: int) -> int:
    """Memory of a process in KB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


def greet(address: tuple[str, int], greeting: bytes) -> float:
    """Seconds until a new connection gets an answer."""
    begun = time.monotonic()
    with socket.create_connection(address, timeout=30) as other:
        other.sendall(greeting)
        assert other.recv(4), "somebody else is not served"
    return time.monotonic() - begun


def attack(store: Path, frames: int, seed: int = 1, *, accounts: bool = False) -> Met:
    """Send ``count`` frames, each on its own connection; with accounts, to a server with access control."""
    source, met, options = random.Random(seed), Met([]), []
    greeting = build(sign(_ASKED, _ADMIN) if accounts else _ASKED)
    if accounts:
        known = store.with_name("plain_acl.yml")
        known.write_text(_ACCOUNTS)
        options = ["--acl-config", str(known)]
    with Serving(store, "--create", "--engine", "5.3", *options) as serving:
        host, _, port = serving.broker.rpartition(":")
        address = (host, int(port))
        assert serving.process.stderr is not None
        logged = threading.Thread(target=met.lines.extend, args=(serving.process.stderr,))
        logged.start()
        for number in range(1, frames + 1):
            with socket.create_connection(address, timeout=30) as connection:
                connection.sendall(hostile(source, accounts=accounts))
            if number % max(frames // 20, 1) == 0:
                met.slowest = max(met.slowest, greet(address, greeting))
                met.end = memory(serving.process.pid)
                met.begin = met.begin or met.end
        serving.process.terminate()
        met.code = serving.process.wait(60)
        logged.join(60)
    met.queues = sum(1 for _ in (store / "consumequeue").glob("*/*"))
    return met


def main() -> None:
    """Run and print the result."""
    options = argparse.ArgumentParser(prog="python -m tests.interop.hostile", description=__doc__)
    options.add_argument("--frames", type=int, default=100_000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--accounts", action="store_true", help="who may do what is checked, and nobody may anything")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmqtool-hostile-") as made:
        met = attack(Path(made, "store"), chosen.frames, chosen.seed, accounts=chosen.accounts)
    print(
        f"{chosen.frames} frames: exit code {met.code}, {len(met.lines)} lines logged, memory {met.begin >> 10} to "
        f"{met.end >> 10} MB, others answered within {met.slowest:.3f} s, {met.queues} queues written"
    )


if __name__ == "__main__":
    main()
