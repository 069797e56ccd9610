"""Telemetry beside a run: which readers there are, one course of samples for each round, and what they say about it, laid on the round's record."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.measure.orphans import living
from harness.measure.telemetry.flags import Findings, blind, judged, span
from harness.measure.telemetry.host import HostReader
from harness.measure.telemetry.nvml import Nvml
from harness.measure.telemetry.provider import Reader, Sample
from harness.measure.telemetry.sampler import Sampler, Summary
from harness.model import Gpu, Round, RoundRecord

Write = Callable[[str, Sequence[Sample]], None]
"""Takes a round's id and samples of it."""


class Telemetry:
    """Samples the machine while rounds are measured. Without readers it does nothing."""

    def __init__(self, readers: Sequence[Reader], write: Write, gpus: Sequence[Gpu] = (), *, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        """`write` gets every batch, on the sampler's thread; `gpus` are the cards that readers watch."""
        self._readers = tuple(readers)
        self._write = write
        self._gpus = tuple(gpus)
        self._clock = clock
        self._sampler = Sampler(self._readers, clock=clock)

    def over(self, round_: Round, measure: Callable[[], RoundRecord]) -> RoundRecord:
        """Measure a round with the machine watched, and return its record with the flags that this raised."""
        if not self._readers:
            return measure()
        findings = Findings(cards_of(round_, self._gpus))

        def take(samples: list[Sample]) -> None:
            findings.take(samples)
            self._write(round_.id, samples)

        start_ns = self._clock()
        self._sampler.start(take)
        try:
            record = measure()
        finally:
            summaries = self._sampler.stop()
        end_ns = self._clock()
        counted = self._written(round_.id, [*counts(summaries, end_ns)])
        flags = [*findings.flags(*(span(record) or (start_ns, end_ns))), *blind([*summaries, *counted])]
        return judged(record, flags, findings.lost())

    def close(self) -> None:
        """Give the readers' connections back, unless a question to one of them is still open."""
        if not self._sampler.stuck:
            for reader in self._readers:
                reader.close()

    def _written(self, round_: str, samples: Sequence[Sample]) -> list[Summary]:
        """Write samples on this thread; returns what went wrong, as the sampler would tell it."""
        try:
            self._write(round_, samples)
        except Exception as error:  # noqa: BLE001 (as in the sampler: a full disk is the session's to report)
            return [Summary((), 0.0, 1, 0, 0, 1, f"{type(error).__name__}: {error}")]
        return []


def counts(summaries: Sequence[Summary], t_ns: int) -> list[Sample]:
    """Return how the sampling itself went as samples of each device, so that nobody takes "not looked" for "nothing there"."""
    return [
        Sample(device, t_ns, f"sampler_{name}", float(getattr(summary, name)))
        for summary in summaries
        for device in summary.devices
        for name in ("samples", "period_s", "overruns", "errors", "untaken")
    ]


def cards_of(round_: Round, gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return the cards that a round's processes compute on; a process that was given none in particular may use them all."""
    asked = [process.gpus for trial in round_.trials for process in trial.processes]
    if any(uuids is None for uuids in asked):
        return tuple(gpus)
    wanted = {uuid for uuids in asked for uuid in uuids or ()}
    return tuple(gpu for gpu in gpus if gpu.uuid in wanted)


def open_telemetry(gpus: Sequence[Gpu], live: Path, write: Write, host_period_s: float | None) -> Telemetry:
    """Return telemetry of this machine and of `gpus`; None for `host_period_s` turns all of it off. `live` names the workers that live.

    Nothing is raised for a machine that cannot be read: that is told in samples and flags.
    """
    if host_period_s is None:
        return Telemetry((), write)

    def ours(pid: int) -> bool:
        """A worker's own children are in its session."""
        workers = living(live)
        return pid == os.getpid() or pid in workers or _session(pid) in workers

    host = HostReader(lambda: living(live), period_s=host_period_s)
    readers: list[Reader] = [host]
    if gpus:
        readers.append(Nvml(ours).open(gpus))
    return Telemetry(readers, write, gpus)


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None
