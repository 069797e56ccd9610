"""TensorBoard logs of a run: throughput of every timed block and samples of the machine, as one event file in the bundle.

Losses and learning rates are written by the workers themselves, beside it. All of it is written between rounds: to write takes time, and none of it may
come out of what is timed. TensorFlow is not needed; tensorboardX, which knows the format, is imported when a log is opened.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.measure.telemetry.provider import HOST
from harness.watch.exporter import OF_CARDS, OF_HOST
from harness.watch.several import arms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from harness.measure.session import Progress
    from harness.measure.telemetry.provider import Sample
    from harness.model import Estimate, Gpu, Plan, Round, RoundRecord

EVERY_NS = 1_000_000_000
"""Of each value one sample in this time is kept: curves for people need no more, and all of them are in the bundle's telemetry."""
KEPT = frozenset(shown.sample for shown in (*OF_CARDS, *OF_HOST))
_NO_TAG = re.compile(r"[^-/\w.]+")


@dataclass(frozen=True)
class Point:
    """A value to be drawn. `step` is its place on the axis: of blocks their number, of samples the seconds since the log was opened."""

    t_ns: int
    step: int
    tag: str
    value: float


class Log:
    """Takes in what a run tells, and writes it when a round has ended. A disk that refuses ends the log, not the run: `complain` is told once."""

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        gpus: Sequence[Gpu],
        complain: Callable[[str], None],
        *,
        clock: Callable[[], int] = time.perf_counter_ns,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`clock` is that of samples and blocks, `wall_ns` that of calendars. The file is made here, and its name tells no host."""
        self._lock = threading.Lock()
        self._plan = plan
        self._complain = complain
        self._clock = clock
        self._start_ns = clock()
        self._wall_offset_ns = wall_ns() - self._start_ns
        self._names = {HOST: "host", **_card_names(gpus)}
        self._arms: dict[str, tuple[str, str]] = {}
        self._contrast = ""
        self._blocks: Counter[str] = Counter()
        self._kept_ns: dict[tuple[str, str], int] = {}
        self._points: list[Point] = []
        self._file: Any = None
        try:
            from tensorboardX.record_writer import RecordWriter  # noqa: PLC0415 - see the module's first lines

            folder.mkdir(parents=True, exist_ok=True)
            seconds = (self._start_ns + self._wall_offset_ns) // 10**9
            self._file = RecordWriter(str(folder / f"events.out.tfevents.{seconds}.{secrets.token_hex(4)}"))
            self._write(Point(self._start_ns, 0, "", 0.0), version="brain.Event:2")
        except OSError as error:
            self._give_up(error)

    def round(self, round_: Round, done: int, time_left_s: float | None) -> None:
        """A round begins."""
        del done, time_left_s
        self._contrast = round_.contrast
        self._arms = arms(self._plan, round_)

    def tell(self, progress: Progress) -> None:
        """Keep the throughput of a block."""
        rate = progress.numbers.get("rate")
        if progress.kind != "block" or progress.trial is None or not isinstance(rate, int | float):
            return
        letter, label = self._arms.get(progress.trial, ("", progress.trial))
        tag = f"{progress.numbers.get('unit') or 'work'}_per_s/{self._contrast}/{letter} {label}"
        self._blocks[tag] += 1
        self._keep(Point(self._clock(), self._blocks[tag], tag, float(rate)))

    def sampled(self, samples: Sequence[Sample]) -> None:
        """Keep what is shown of the machine, thinned out. Called on the sampler's thread."""
        for sample in samples:
            key = (sample.device, sample.name)
            if sample.value is None or sample.name not in KEPT or sample.t_ns - self._kept_ns.get(key, -EVERY_NS) < EVERY_NS:
                continue
            self._kept_ns[key] = sample.t_ns
            seconds = max(0, sample.t_ns - self._start_ns) // 10**9
            self._keep(Point(sample.t_ns, seconds, f"{self._names.get(sample.device, sample.device)}/{sample.name}", sample.value))

    def ended(self, record: RoundRecord) -> None:
        """Write what the round has told."""
        del record
        self.flush()

    def estimate(self, title: str, estimate: Estimate | None) -> None:
        """Estimates are in the report."""

    def flush(self) -> None:
        """Write what is kept."""
        with self._lock:
            points, self._points = sorted(self._points, key=lambda point: point.t_ns), []
        try:
            for point in points:
                self._write(point)
            if self._file is not None:
                self._file.flush()
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Write what is left, and end the file."""
        self.flush()
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # all of it was flushed
                file.close()

    def _keep(self, point: Point) -> None:
        with self._lock:
            if self._file is not None:
                self._points.append(point)

    def _write(self, point: Point, version: str | None = None) -> None:
        """Append one event: a point or, first of all, the version of the format."""
        if self._file is None:
            return
        from tensorboardX.proto.event_pb2 import Event  # noqa: PLC0415 - see the module's first lines
        from tensorboardX.proto.summary_pb2 import Summary  # noqa: PLC0415

        wall_s = (point.t_ns + self._wall_offset_ns) / 1e9
        if version is not None:
            event = Event(wall_time=wall_s, file_version=version)
        else:
            value = Summary.Value(tag=_NO_TAG.sub("_", point.tag), simple_value=point.value)
            event = Event(wall_time=wall_s, step=point.step, summary=Summary(value=[value]))
        self._file.write(event.SerializeToString())

    def _give_up(self, error: OSError) -> None:
        file, self._file = self._file, None
        self._complain(f"the TensorBoard log cannot be written any more ({error.strerror or error}); the run goes on without it")
        if file is not None:
            with suppress(OSError):
                file.close()


def _card_names(gpus: Sequence[Gpu]) -> dict[str, str]:
    """Return UUID -> "gpu0"; slices of one card share its index, and are told apart by their place."""
    indices = Counter(gpu.index for gpu in gpus)
    places: Counter[int] = Counter()
    names = {}
    for gpu in gpus:
        places[gpu.index] += 1
        names[gpu.uuid] = f"gpu{gpu.index}" if indices[gpu.index] == 1 else f"gpu{gpu.index}-{places[gpu.index]}"
    return names


@contextmanager
def log_to(folder: Path | None, plan: Plan, gpus: Sequence[Gpu], complain: Callable[[str], None]) -> Iterator[Log | None]:
    """Keep a log in the subfolder `sweep` of `folder` for as long as the context lasts; none where `folder` is None."""
    if folder is None:
        yield None
        return
    log = Log(folder / "sweep", plan, gpus, complain)
    try:
        yield log
    finally:
        log.close()
