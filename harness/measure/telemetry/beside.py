"""Telemetry beside a run: which readers there are, one course of samples for each round, and what they say about it, laid on the round's record."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from harness.measure.orphans import living
from harness.measure.telemetry.flags import FLAG_RULES, Findings, FlagRules, blind, judged, span
from harness.measure.telemetry.host import HostReader
from harness.measure.telemetry.nvml import Nvml
from harness.measure.telemetry.provider import Reader, Sample
from harness.measure.telemetry.readings import ENERGY, HOST_ENERGY, POWER, RoundSamples
from harness.measure.telemetry.sampler import Sampler, Summary
from harness.model import IDLE_ROUND, Gpu, Reading, Round, RoundRecord, Trial

Write = Callable[[str, Sequence[Sample]], None]
"""Takes a round's id and samples of it."""

IDLE_S = 2.0
"""How long the machine's power is read before anything runs."""
WRITE_EVERY_NS = 1_000_000_000
"""A kill loses the samples of so long at most."""
POWER_NAMES = frozenset({POWER, ENERGY, HOST_ENERGY})


class Telemetry:
    """Samples the machine while rounds are measured. Without readers it does nothing."""

    def __init__(
        self,
        readers: Sequence[Reader],
        write: Write,
        gpus: Sequence[Gpu] = (),
        *,
        rules: FlagRules = FLAG_RULES,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """`write` gets what was sampled about once a second, on the sampler's thread, and the rest of a round at its end; `gpus` are the cards that readers watch."""
        self._readers = tuple(readers)
        self._write = write
        self._gpus = tuple(gpus)
        self._rules = rules
        self._clock = clock
        self._sampler = Sampler(self._readers, clock=clock)

    @property
    def stuck(self) -> bool:
        """Whether a question to a device has not come back: another one, from whatever thread, might not either."""
        return self._sampler.stuck

    def over(self, round_: Round, measure: Callable[[], RoundRecord]) -> RoundRecord:
        """Measure a round with the machine watched, and return its record with the flags that this raised and the readings that it made."""
        if not self._readers:
            return measure()
        cards = cards_of(round_, self._gpus)
        findings, kept, batch = Findings(cards, self._rules), RoundSamples(cards), _Batch(round_.id, self._write, self._clock)

        def take(samples: list[Sample]) -> None:
            findings.take(samples)
            kept.take(samples)
            batch.take(samples)

        start_ns = self._clock()
        self._sampler.start(take)
        try:
            record = measure()
        finally:
            summaries = self._sampler.stop()
        end_ns = self._clock()
        counted = batch.written([*counts(summaries, end_ns)])
        flags = [*findings.flags(*(span(record) or (start_ns, end_ns))), *blind([*summaries, *counted])]
        record = judged(record, flags, findings.lost())
        return replace(record, readings=(*record.readings, *self._readings(round_, record, kept, summaries)))

    def idle(self, seconds: float = IDLE_S) -> None:
        """Write samples of the machine at rest, as those of a round of their own. Does nothing, at once, where no reader tells any power."""
        if not self._readers:
            return
        first: list[Sample] = []
        self._sampler.start(first.extend)
        self._sampler.stop()
        if self.stuck or not any(sample.name in POWER_NAMES and sample.value is not None for sample in first):
            return
        self._sampler.start(lambda samples: self._write(IDLE_ROUND, samples))
        try:
            time.sleep(seconds)
        finally:
            self._sampler.stop()

    def close(self) -> None:
        """Give the readers' connections back, unless a question to one of them is still open."""
        if not self.stuck:
            for reader in self._readers:
                reader.close()

    def _readings(self, round_: Round, record: RoundRecord, kept: RoundSamples, summaries: Sequence[Summary]) -> list[Reading]:
        periods_s = {device: summary.period_s for summary in summaries for device in summary.devices}
        ran = [trial for trial in round_.trials if record.trial(trial.id) is not None]
        return [reading for trial in ran for reading in kept.readings(record, trial, cards_of_trial(trial, self._gpus), periods_s)]


class _Batch:
    """Samples of a round that are not written yet. Many small writes would be most of what watching costs."""

    def __init__(self, round_: str, write: Write, clock: Callable[[], int]) -> None:
        self._round, self._write, self._clock = round_, write, clock
        self._samples: list[Sample] = []
        self._since_ns = clock()

    def take(self, samples: Sequence[Sample]) -> None:
        """Keep samples, and write all that are kept once WRITE_EVERY_NS have gone by. What could not be written is lost, and raised."""
        self._samples.extend(samples)
        now_ns = self._clock()
        if now_ns - self._since_ns >= WRITE_EVERY_NS:
            due, self._samples, self._since_ns = self._samples, [], now_ns
            self._write(self._round, due)

    def written(self, last: Sequence[Sample]) -> list[Summary]:
        """Write the rest and `last`, on this thread; returns what went wrong, as the sampler would tell it."""
        due, self._samples = [*self._samples, *last], []
        try:
            self._write(self._round, due)
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
    """Return the cards that a round's processes compute on."""
    used = {gpu.uuid for trial in round_.trials for gpu in cards_of_trial(trial, gpus)}
    return tuple(gpu for gpu in gpus if gpu.uuid in used)


def cards_of_trial(trial: Trial, gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return the cards that a trial's processes compute on; a process that was given none in particular may use them all."""
    asked = [process.gpus for process in trial.processes]
    if any(uuids is None for uuids in asked):
        return tuple(gpus)
    wanted = {uuid for uuids in asked for uuid in uuids or ()}
    return tuple(gpu for gpu in gpus if gpu.uuid in wanted)


def open_telemetry(gpus: Sequence[Gpu], live: Path, write: Write, host_period_s: float | None, rules: FlagRules = FLAG_RULES) -> Telemetry:
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
    return Telemetry(readers, write, gpus, rules=rules)


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (OSError, OverflowError):  # what a driver lists need not be a process id
        return None
