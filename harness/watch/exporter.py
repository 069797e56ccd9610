"""A run's present state for Prometheus: an endpoint beside the sweep, which a Prometheus server asks whenever it likes.

Names and units follow Prometheus' conventions (base units, shares from 0 to 1). It tells what it was told last; what is not known, or no longer, is
absent: 0 would be a statement. Series are few however long a run is: of rounds and arms only those of the moment are told. prometheus_client is
imported when an endpoint is opened.
"""

from __future__ import annotations

import errno
import ipaddress
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.errors import ConfigError
from harness.measure.telemetry.beside import cards_of, cards_of_trial
from harness.measure.telemetry.provider import HOST, THROTTLE_WORDS
from harness.watch.several import arms

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from prometheus_client.metrics_core import Metric

    from harness.measure.session import Progress
    from harness.measure.telemetry.provider import Sample
    from harness.model import Estimate, Gpu, Machine, Plan, Round, RoundRecord


Values = dict[tuple[str, ...], float | None]
"""The values of a metric's labels -> its value; None: not known."""


@dataclass(frozen=True)
class Shown:
    """A sample's name, the metric that shows it, how many of the metric's units one of the sample's is, and whether it only grows."""

    sample: str
    metric: str
    factor: float = 1.0
    counter: bool = False


OF_CARDS = (
    Shown("kernel_busy_share", "speedproof_gpu_kernel_busy_ratio"),
    Shown("sm_active_share", "speedproof_gpu_sm_active_ratio"),
    Shown("tensor_active_share", "speedproof_gpu_tensor_active_ratio"),
    Shown("memory_used_bytes", "speedproof_gpu_memory_used_bytes"),
    Shown("temperature_c", "speedproof_gpu_temperature_celsius"),
    Shown("power_w", "speedproof_gpu_power_watts"),
    Shown("energy_j", "speedproof_gpu_energy_joules_total", counter=True),
    Shown("sm_clock_mhz", "speedproof_gpu_sm_clock_hertz", 1e6),
    Shown("memory_clock_mhz", "speedproof_gpu_memory_clock_hertz", 1e6),
    Shown("gpu_lost", "speedproof_gpu_lost"),
)
OF_HOST = (
    Shown("cpu_share", "speedproof_host_cpu_busy_ratio"),
    Shown("rss_bytes", "speedproof_workers_resident_memory_bytes"),
    Shown("cpu_energy_j", "speedproof_host_cpu_energy_joules_total", counter=True),
)
METRICS = {
    "speedproof_run_info": "The run that is going on: its bundle, its sweep, the machine's name in reports.",
    "speedproof_contrast_info": "The comparison that is being measured; only the one of the moment is told.",
    "speedproof_rounds_planned": "Rounds that the plan asks for: until every comparison has had its first look, and if each needs its last one.",
    "speedproof_rounds_recorded": "Rounds in the run's record so far, those of earlier parts of a resumed run included.",
    "speedproof_rounds_ended_total": "Rounds that have ended since this part of the run began, by outcome.",
    "speedproof_flags_total": "Flags that were laid on rounds since this part of the run began, by code: what a reader of the figures has to know.",
    "speedproof_quads_total": "Quads of blocks measured since this part of the run began, warm-up aside, by whether foreign load let them count.",
    "speedproof_time_left_seconds": "About how long the rest takes, as estimated when the present round began; absent where it is not known.",
    "speedproof_blocks_running": "1 while timed blocks follow one another, 0 while workers start, get ready, end, or do something else.",
    "speedproof_arm_work_per_second": "Throughput of the last timed block of each arm of the present round, in units of the arm's work.",
    "speedproof_foreign_load_cores": "Cores that were busy with anything but the run during the last quad; absent where it could not be read.",
    "speedproof_gpu_measured": "1 while timed blocks run that may use this card, or a job or a single call of an arm that does is timed, else 0.",
    "speedproof_gpu_kernel_busy_ratio": "Share of time in which any kernel ran on the card; says nothing of how much of the card was at work.",
    "speedproof_gpu_sm_active_ratio": "Share of the card's multiprocessors that were at work, over time.",
    "speedproof_gpu_tensor_active_ratio": "Share of time in which the tensor cores were at work.",
    "speedproof_gpu_memory_used_bytes": "Memory of the card that is in use, by anybody, without the driver's own reserve.",
    "speedproof_gpu_temperature_celsius": "Temperature of the chip.",
    "speedproof_gpu_power_watts": "Power that the card draws.",
    "speedproof_gpu_energy_joules_total": "Energy that the card has used since its driver was loaded, by its own counter.",
    "speedproof_gpu_sm_clock_hertz": "Clock of the multiprocessors.",
    "speedproof_gpu_memory_clock_hertz": "Clock of the card's memory.",
    "speedproof_gpu_lost": "1 once the card no longer answers; nothing else is told of it then.",
    "speedproof_gpu_throttled": "1 while the card's clocks are held down for this reason, else 0.",
    "speedproof_host_cpu_busy_ratio": "Busy share of the cores that the run may use, whoever used them.",
    "speedproof_workers_resident_memory_bytes": "Resident memory of the run's workers together; absent while none lives.",
    "speedproof_host_cpu_energy_joules_total": "Energy that the processors have used since this part of the run began (RAPL).",
}
"""Every metric with what it says. Nothing else is exported."""


@dataclass
class _Present:
    """The round of the moment. `arms` is trial -> (letter, label), `rates` trial -> (units of work a second, unit).

    `cards` are those of all its trials, `cards_of_arm` trial -> its own; `timed` the cards of the trial whose job or single call is being timed.
    """

    labels: dict[str, str]
    arms: dict[str, tuple[str, str]]
    cards: frozenset[str]
    cards_of_arm: dict[str, frozenset[str]]
    rates: dict[str, tuple[float, str]] = field(default_factory=dict)
    blocks_running: bool = False
    timed: frozenset[str] = frozenset()

    def rest(self) -> None:
        """Nothing is timed now."""
        self.blocks_running, self.timed = False, frozenset()

    def measures(self, uuid: str) -> bool:
        """Whether something is timed that may use this card."""
        return uuid in (self.cards if self.blocks_running else self.timed)


class Exporter:
    """Takes in what a run tells, and is a collector of prometheus_client's: asked on the threads of its server, told on those of the run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plan: Plan | None = None
        self._run: dict[str, str] = {}
        self._planned: dict[str, int] = {}
        self._gpus: tuple[Gpu, ...] = ()
        self._present: _Present | None = None
        self._recorded: int | None = None
        self._time_left_s: float | None = None
        self._foreign_cores: float | None = None
        self._ended: Counter[str] = Counter()
        self._flags: Counter[str] = Counter()
        self._quads: Counter[str] = Counter()
        self._samples: dict[tuple[str, str], float] = {}

    # ------------------------------------------------------------ what the run tells

    def plan(self, plan: Plan, name: str, machine: Machine) -> None:
        """Take in what is about to run. `name` is the bundle's."""
        due = [contrast for contrast in plan.contrasts if not contrast.standby]
        with self._lock:
            self._plan = plan
            self._gpus = machine.gpus
            self._run = {"run": name, "sweep": plan.sweep, "machine": machine.slug}
            self._planned = {"first_looks": sum(c.looks[0] for c in due), "last_looks": sum(c.looks[-1] for c in due)}

    def round(self, round_: Round, done: int, time_left_s: float | None) -> None:
        """A round begins: what was told of the one before it is no longer of the moment."""
        contrast = next((c for c in self._plan.contrasts if c.id == round_.contrast), None) if self._plan is not None else None
        labels = {
            "contrast": round_.contrast,
            "title": contrast.title if contrast is not None else "",
            "purpose": contrast.purpose.value if contrast is not None else "",
            "arrangement": round_.arrangement.value,
        }
        cards = frozenset(gpu.uuid for gpu in cards_of(round_, self._gpus))
        cards_of_arm = {trial.id: frozenset(gpu.uuid for gpu in cards_of_trial(trial, self._gpus)) for trial in round_.trials}
        with self._lock:
            self._present = _Present(labels, arms(self._plan, round_), cards, cards_of_arm)
            self._recorded = done
            self._time_left_s = time_left_s
            self._foreign_cores = None

    def tell(self, progress: Progress) -> None:
        """Take in what a session says: a phase, that something is timed as a whole, a block, a quad, or that a round has ended."""
        with self._lock:
            if progress.kind == "block":
                self._block(progress)
            elif progress.kind == "quad":
                self._quad(progress)
            elif self._present is not None:
                self._present.rest()
                if progress.kind == "timed" and progress.trial is not None:
                    self._present.timed = self._present.cards_of_arm.get(progress.trial, frozenset())

    def sampled(self, samples: Sequence[Sample]) -> None:
        """Take in samples of the machine. One without a value takes back what was told under its name."""
        with self._lock:
            for sample in samples:
                if sample.value is None:
                    self._samples.pop((sample.device, sample.name), None)
                else:
                    self._samples[sample.device, sample.name] = sample.value

    def ended(self, record: RoundRecord) -> None:
        """Count a round that has ended, with its flags."""
        with self._lock:
            self._ended[record.outcome.state.value] += 1
            self._flags.update(flag.code for flag in record.flags)
            if self._recorded is not None:
                self._recorded += 1
            if self._present is not None:
                self._present.rest()

    def estimate(self, title: str, estimate: Estimate | None) -> None:
        """Estimates are no metrics: they belong to their looks, not to a moment."""

    def _block(self, progress: Progress) -> None:
        if self._present is None or progress.trial is None:
            return
        self._present.blocks_running = True
        rate, unit = progress.numbers.get("rate"), progress.numbers.get("unit")
        if isinstance(rate, int | float):
            self._present.rates[progress.trial] = (float(rate), str(unit or ""))

    def _quad(self, progress: Progress) -> None:
        cores = progress.numbers.get("foreign_cores")
        self._foreign_cores = float(cores) if isinstance(cores, int | float) else None
        if progress.numbers.get("index") != 0:  # quad 0 is warm-up
            self._quads["true" if progress.numbers.get("accepted") else "false"] += 1

    # ------------------------------------------------------------ what Prometheus asks

    def collect(self) -> Iterable[Metric]:
        """Return the metrics as they are now, those without any value included: their names and meanings are told from the start."""
        with self._lock:
            return [*self._of_the_run(), *self._of_the_round(), *self._of_the_cards(), *self._of_the_host()]

    def _of_the_run(self) -> Iterator[Metric]:
        yield _info("speedproof_run_info", self._run)
        yield _gauge("speedproof_rounds_planned", ("until",), {(name,): count for name, count in self._planned.items()})
        yield _gauge("speedproof_rounds_recorded", (), {(): self._recorded})
        yield _counter("speedproof_rounds_ended_total", ("outcome",), {(name,): count for name, count in self._ended.items()})
        yield _counter("speedproof_flags_total", ("code",), {(name,): count for name, count in self._flags.items()})
        yield _counter("speedproof_quads_total", ("accepted",), {(name,): count for name, count in self._quads.items()})
        yield _gauge("speedproof_time_left_seconds", (), {(): self._time_left_s})

    def _of_the_round(self) -> Iterator[Metric]:
        present = self._present
        yield _info("speedproof_contrast_info", present.labels if present is not None else {})
        yield _gauge("speedproof_blocks_running", (), {(): None if present is None else float(present.blocks_running)})
        rates: Values = {}
        if present is not None:
            rates = {(*present.arms.get(trial, ("", trial)), unit): rate for trial, (rate, unit) in present.rates.items()}
        yield _gauge("speedproof_arm_work_per_second", ("arm", "label", "unit"), rates)
        yield _gauge("speedproof_foreign_load_cores", (), {(): self._foreign_cores})

    def _of_the_cards(self) -> Iterator[Metric]:
        labels = ("gpu", "uuid")
        cards = [((str(gpu.index), gpu.uuid), gpu.uuid) for gpu in self._gpus]
        for shown in OF_CARDS:
            yield _shown(shown, labels, {names: self._samples.get((uuid, shown.sample)) for names, uuid in cards})
        present = self._present
        measured: Values = {names: None if present is None else float(present.measures(uuid)) for names, uuid in cards}
        yield _gauge("speedproof_gpu_measured", labels, measured)
        reasons: Values = {(*names, word): self._samples.get((uuid, f"throttle_{word}")) for names, uuid in cards for word in THROTTLE_WORDS}
        yield _gauge("speedproof_gpu_throttled", (*labels, "reason"), reasons)

    def _of_the_host(self) -> Iterator[Metric]:
        for shown in OF_HOST:
            yield _shown(shown, (), {(): self._samples.get((HOST, shown.sample))})


def _shown(shown: Shown, labels: Sequence[str], values: Values) -> Metric:
    scaled: Values = {names: None if value is None else value * shown.factor for names, value in values.items()}
    return (_counter if shown.counter else _gauge)(shown.metric, labels, scaled)


def _gauge(name: str, labels: Sequence[str], values: Values) -> Metric:
    """Return a gauge with a series for each value that is known."""
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - see the module's first lines

    metric = GaugeMetricFamily(name, METRICS[name], labels=labels)
    for names, value in values.items():
        if value is not None:
            metric.add_metric(names, value)
    return metric


def _counter(name: str, labels: Sequence[str], values: Values) -> Metric:
    """As `_gauge`, of what only grows."""
    from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415

    metric = CounterMetricFamily(name, METRICS[name], labels=labels)
    for names, value in values.items():
        if value is not None:
            metric.add_metric(names, value)
    return metric


def _info(name: str, labels: Mapping[str, str]) -> Metric:
    """Return a metric whose labels are what it says; without any it has no series."""
    from prometheus_client.core import InfoMetricFamily  # noqa: PLC0415

    metric = InfoMetricFamily(name.removesuffix("_info"), METRICS[name])
    if labels:
        metric.add_metric((), dict(labels))
    return metric


# ---------------------------------------------------------------- the endpoint


@dataclass(frozen=True)
class Endpoint:
    """An exporter and where it can be asked; `loopback`: by this machine only."""

    exporter: Exporter
    url: str
    loopback: bool

    @property
    def text(self) -> str:
        """A sentence for the person at the keyboard."""
        return f"metrics for Prometheus: {self.url}" + ("" if self.loopback else " (not encrypted, and open to everyone who reaches this machine)")


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


@contextmanager
def serve(port: int | None, address: str) -> Iterator[Endpoint | None]:
    """Serve a new exporter for as long as the context lasts; nothing is opened where `port` is None. Port 0 is any free one.

    Raises ConfigError, naming the key, where the port is taken or the address is none of this machine's.
    """
    if port is None:
        yield None
        return
    from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415

    exporter = Exporter()
    collected = CollectorRegistry()
    collected.register(exporter)
    try:
        server, thread = start_http_server(port, addr=address, registry=collected)
    except (OSError, UnicodeError) as error:
        raise ConfigError(_refusal(port, address, error)) from error
    host = f"[{address}]" if ":" in address else address
    try:
        yield Endpoint(exporter, f"http://{host}:{server.server_port}/metrics", _is_loopback(address))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _refusal(port: int, address: str, error: OSError | UnicodeError) -> str:
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    if isinstance(error, OSError) and error.errno in {errno.EADDRINUSE, errno.EACCES}:
        return f"telemetry.prometheus_port={port}: cannot be opened on {address} ({why}); choose another port, or 0 for any free one"
    return f"telemetry.prometheus_address={address}: cannot be listened on ({why}); name an address of this machine, such as 127.0.0.1"
