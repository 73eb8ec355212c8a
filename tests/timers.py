"""Build stores with a timer by the rules of 5.3 (TimerMessageStore.doEnqueue)."""

from pathlib import Path

from formats.primitives import java_hash
from formats.variants import timer
from tests.services.build import Builder

NOW = 1_700_000_000_000  # current time of the wheel, ms
FILE_SIZE = 52_000
ROLL_WINDOW = 172_800_000  # ms


class Timers:
    """Waiting messages; wheel and timer log are written as by a broker that has enqueued them all.

    Attributes:
        builder: also accepts other messages.
        taken: number of messages in the wheel.
        slots: time of a slot in seconds → (first position, last position, count).
    """

    def __init__(self, file_size: int = FILE_SIZE) -> None:
        self.builder = Builder()
        self.file_size = file_size
        self.log = bytearray()
        self.slots: dict[int, tuple[int, int, int]] = {}
        self.number = self.taken = 0

    def put(
        self, seconds: int, *, enqueue: bool = True, topic: str = "Orders", body: bytes = b"body", **properties: str
    ) -> int:
        """Add a message due ``seconds`` after NOW; returns its physical offset.

        Args:
            enqueue: put it into the wheel.
            properties: override those that a broker writes.
        """
        out = NOW + 1000 * seconds
        self.number += 1
        standard = {
            "TIMER_OUT_MS": str(out), "UNIQ_KEY": f"KEY{self.number:029d}", "REAL_TOPIC": topic, "REAL_QID": "1",
        }  # fmt: skip
        given = {name: value for name, value in {**standard, **properties}.items() if value}
        at = self.builder.put(timer.TOPIC, properties=given, body=body)
        if enqueue:
            self.taken += 1
            self._enqueue(at, len(self.builder.log) - at, out, topic, "TIMER_DEL_UNIQKEY" in properties)
        return at

    def _enqueue(self, at: int, size: int, out: int, topic: str, delete: bool) -> None:
        magic = timer.MAGIC_DEFAULT | timer.MAGIC_DELETE * delete
        if out - NOW >= ROLL_WINDOW:
            magic |= timer.MAGIC_ROLL
            near = out - NOW - ROLL_WINDOW < ROLL_WINDOW // 3
            out = NOW + (ROLL_WINDOW // 2 if near else ROLL_WINDOW)
        left = self.file_size - len(self.log) % self.file_size
        if left < timer.UNIT_SIZE + timer.BLANK_SIZE:
            self.log += timer.build_blank(left).ljust(left, b"\0")
        position = len(self.log)
        first, last, count = self.slots.get(out // 1000, (position, timer.NOWHERE, 0))
        hashed = java_hash(topic)
        self.log += timer.build_unit(timer.LogUnit(52, last, magic, NOW, out - NOW, at, size, hashed))
        self.slots[out // 1000] = first, position, count + 1 - 2 * delete

    def write(self, root: Path, *, file_size: int | None = None) -> Path:
        """Write the store; returns its directory."""
        store = self.builder.write(root)
        if file_size is not None:
            path = store / "commitlog" / f"{0:020d}"
            path.write_bytes(bytes(self.builder.log).ljust(file_size, b"\0"))
        folder = store / "timerlog"
        folder.mkdir()
        for base in range(0, len(self.log), self.file_size):
            part = bytes(self.log[base : base + self.file_size])
            (folder / f"{base:020d}").write_bytes(part.ljust(self.file_size, b"\0"))
        with (store / "timerwheel").open("wb") as wheel:
            wheel.truncate(timer.WHEEL_SIZE)
            for second, (first, last, count) in self.slots.items():
                wheel.seek(second % timer.SLOTS * 32)
                wheel.write(timer.build_slot(timer.Slot(second, first, last, count)))
        point = timer.TimerCheckpoint(NOW, len(self.log), self.taken, self.taken)
        (store / "config" / "timercheck").write_bytes(timer.build_checkpoint(point))
        return store


def slot_for(buf: bytes | memoryview, time: int, precision: int = 1000) -> timer.Slot | None:
    """The slot for a delivery time in ms; None if the wheel has another round's slot there, or nothing."""
    slot = timer.read_slot(buf, timer.slot_index(time, precision))
    return slot if slot.time == time // precision and any(slot) else None
