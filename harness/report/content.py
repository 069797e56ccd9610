"""What the report says, as text in order: headline, validity, tables, cards. Page and Markdown print this same value, so no number can differ.

Everything here is plain text; escaping is the business of whoever prints it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.model import Word
from harness.report import numbers
from harness.report.cards import Card, Table, make_cards
from harness.report.hardware_sections import hardware_sections
from harness.report.sections import Section, make_sections
from harness.report.validity import Check, controls_table, validity
from harness.report.words import IN_A_SENTENCE, JUDGED, LOOKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.model import CardPair, Claim, Gpu, Ground, Machine, Volume
    from harness.report.index import Index

GROUPS = {
    "input": "Input pipeline", "execution": "Execution", "devices": "Several devices", "precision": "Precision", "checkpoints": "Checkpoints",
    "together": "All together", "hardware": "Hardware and set-up", "inference": "Inference",
}  # fmt: skip

MEETING = {
    "PIX": "one switch", "PXB": "several switches", "PHB": "a host bridge", "NODE": "host bridges of one NUMA node", "SYS": "several NUMA nodes",
}  # fmt: skip
"""Where the ways of two cards over PCIe meet, by the word of `nvidia-smi topo -m`."""


@dataclass(frozen=True)
class Chip:
    """How many claims got a word."""

    word: Word
    count: int
    says: str


@dataclass(frozen=True)
class Content:
    """The whole report as text."""

    machine_line: str
    run_line: str
    preliminary: str | None
    headline: str
    highlights: tuple[str, ...]
    chips: tuple[Chip, ...]
    checks: tuple[Check, ...]
    controls: Table | None
    sections: tuple[Section, ...]
    groups: tuple[tuple[str, tuple[Card, ...]], ...]
    untestable: Table | None
    elsewhere: str | None
    facts: tuple[Table, ...]
    config: str
    dropped: str


def make_content(index: Index, tables: dict[str, Any], notes: Sequence[str]) -> Content:
    """Return the report's text. `tables` are the frames that the figures were drawn from."""
    manifest, plan = index.manifest, index.plan
    words = Counter(result.verdict.word for result in index.verdicts.claims)
    elsewhere = [claim for claim in plan.claims if claim.in_another_sweep]
    words[Word.NOT_TESTABLE] = sum(1 for claim in plan.claims if claim.not_testable or _word(index, claim.id) is Word.NOT_TESTABLE) - len(elsewhere)
    names = ", ".join(gpu.name for gpu in manifest.machine.gpus)
    machine = ", ".join(part for part in (names, manifest.machine.cpu_model, f"{numbers.plural(manifest.machine.cores, 'core')}") if part)
    cards = make_cards(index, tables["rounds"])
    order = list(dict.fromkeys([*(g for g in GROUPS if any(c.group == g for c in cards)), *(c.group for c in cards)]))
    return Content(
        machine_line=f"{machine}, {numbers.size(manifest.machine.memory_bytes)} memory",
        run_line=f"Sweep {plan.sweep}, started {manifest.created_at}, run {manifest.name}",
        preliminary=_preliminary(index),
        headline=headline(words, len(index.records)),
        highlights=tuple(highlights(tables["speedups"])),
        chips=tuple(Chip(word, words[word], LOOKS[word].says) for word in (*JUDGED, Word.NOT_TESTABLE) if words[word] or word in JUDGED),
        checks=tuple(validity(index, notes)),
        controls=controls_table(index),
        sections=(*make_sections(index, tables), *hardware_sections(tables)),
        groups=tuple((GROUPS.get(group, group.capitalize()), tuple(c for c in cards if c.group == group)) for group in order),
        untestable=_untestable(index),
        elsewhere=_elsewhere(plan.sweep, elsewhere),
        facts=tuple(_facts(index)),
        config=json.dumps(manifest.config, indent=2, sort_keys=True, ensure_ascii=False, default=str).replace("<", "\\u003c"),
        dropped=", ".join(manifest.dropped_env) or "none",
    )


def _word(index: Index, claim: str) -> Word | None:
    result = index.results.get(claim)
    return result.verdict.word if result else None


def _preliminary(index: Index) -> str | None:
    if not (index.plan.preliminary or index.verdicts.preliminary):
        return None
    return (
        f"Preliminary: The sweep {index.plan.sweep} takes few rounds, and each verdict errs with a chance of {numbers.edge(index.plan.alpha, 'share')}. "
        "Run the full sweep before acting on it."
    )


def headline(words: Counter[Word], rounds: int) -> str:
    """Return the one sentence that counts the verdicts."""
    judged = sum(words[word] for word in JUDGED)
    untestable = words[Word.NOT_TESTABLE]
    if judged == 0:
        tail = f"; {numbers.plural(untestable, 'claim')} cannot be tested here" if untestable else ""
        return f"Nothing has been judged yet: {numbers.plural(rounds, 'round')} recorded so far{tail}."
    counted = ", ".join(f"{words[word]} {IN_A_SENTENCE[word]}" for word in JUDGED if words[word])
    tail = f"; {untestable} more cannot be tested here" if untestable else ""
    return f"Of {numbers.plural(judged, 'judged claim')}: {counted}{tail}."


def highlights(speedups: pd.DataFrame) -> list[str]:
    """Return a sentence on the largest speed-up of training shown and one on the largest slowdown; what was not proven equal is never praised."""
    said = []
    speedups = speedups[speedups["trains"].astype(bool)]
    fair = speedups[~speedups["unproven"].astype(bool)]
    low, high = pd.to_numeric(fair["low"]), pd.to_numeric(fair["high"])
    gains, losses = fair[low > 1], fair[high < 1]
    if len(gains):
        best: Any = next(gains.loc[[low[low > 1].idxmax()]].itertuples())
        said.append(f"Largest speed-up shown: {best.measured}, {best.switch} ({best.title}).")
    elif len(speedups):
        said.append("No switch was shown to make training faster.")
    if len(losses):
        worst: Any = next(losses.loc[[high[high < 1].idxmin()]].itertuples())
        said.append(f"Largest slowdown shown: {worst.measured}, {worst.switch} ({worst.title}).")
    return said


def _untestable(index: Index) -> Table | None:
    rows = []
    for claim in index.plan.claims:
        result = index.results.get(claim.id)
        reason = claim.not_testable or (result.verdict.reason if result and result.verdict.word is Word.NOT_TESTABLE else None)
        if reason and not claim.in_another_sweep:
            rows.append((claim.id, claim.statement, reason.text, claim.makes_testable or "not known"))
    return Table("Not testable here", ("claim", "what is said", "why not here", "what would make it testable"), tuple(rows)) if rows else None


def _elsewhere(sweep: str, claims: Sequence[Claim]) -> str | None:
    """Name the claims that nothing but the choice of the sweep leaves out, by what measures them."""
    by_sweep: dict[str, list[str]] = {}
    for claim in claims:
        by_sweep.setdefault(claim.makes_testable or "+sweep=full", []).append(claim.id)
    told = "; ".join(f"{other} measures {', '.join(names)}" for other, names in by_sweep.items())
    return f"Not part of the sweep {sweep}: {told}." if told else None


def _facts(index: Index) -> list[Table]:
    machine, manifest = index.manifest.machine, index.manifest
    hardware = [("processor", machine.cpu_model), ("usable cores", numbers.count(machine.cores)), ("memory", numbers.size(machine.memory_bytes))]
    hardware += [(f"GPU {gpu.index}", _card(gpu)) for gpu in machine.gpus]
    if machine.topology:
        hardware.append(("between GPUs", _between(machine)))
    if machine.gpu_driver:
        hardware.append(("GPU driver", f"{machine.gpu_driver}, CUDA up to {machine.cuda_driver or numbers.NA}"))
    if not machine.gpus:
        hardware.append(("GPU", f"none: {machine.gpu_reason}" if machine.gpu_reason else "none"))
    hardware[2:2] = [
        ("processor sockets", numbers.count(machine.cpu_sockets)), ("physical cores", numbers.count(machine.cpu_physical_cores)),
        ("governor", machine.cpu_governor or numbers.NA),
    ]  # fmt: skip
    hardware += [
        ("NUMA nodes", numbers.count(machine.numa_nodes)), ("disk", machine.disk or numbers.NA), ("container", machine.container or "none"),
    ]  # fmt: skip
    hardware += _ground(manifest.ground)
    software = [("kernel", machine.kernel), ("Python", machine.python), *sorted(machine.packages.items())]
    software += [(f"TensorFlow's build: {name.replace('_', ' ')}", _text(value)) for name, value in machine.framework_build.items()]
    origin = [
        ("run", manifest.name),
        ("machine name", manifest.machine.slug),
        ("started", manifest.created_at),
        ("parts", ", ".join(manifest.parts) or "1"),
    ]
    origin += [(key.replace("_", " "), _text(value)) for key, value in manifest.provenance.items()]
    origin += [
        ("benchmark definition", f"version {manifest.benchmark_version}"), ("bundle schema", f"version {manifest.schema_version}"),
        ("hash of the claims", manifest.claims_hash), ("fingerprint", manifest.fingerprint), ("seed", str(index.plan.seed)),
        ("error rate per verdict", numbers.edge(index.plan.alpha, "share")),
        *((f"threshold {name}", numbers.plain(value)) for name, value in sorted(index.plan.thresholds.items())),
    ]  # fmt: skip
    return [Table(name, ("", ""), tuple(rows)) for name, rows in (("Machine", hardware), ("Software", software), ("Provenance", origin))]


def _ground(ground: Ground | None) -> list[tuple[str, str]]:
    """Return whose images the run reads and where its jobs save to, as far as it was kept."""
    if ground is None:
        return []
    mine = ground.images
    whose = "the suite's photographs" if mine is None else f"{numbers.plural(mine.files, 'file')}, {numbers.size(mine.total_bytes)} ({mine.digest})"
    return [("images", f"{whose}, on {_volume(ground.data)}"), ("jobs save to", _volume(ground.saves))]


def _volume(volume: Volume) -> str:
    return ", ".join(word for word in (volume.file_system, volume.drive) if word) or numbers.NA


def _card(gpu: Gpu) -> str:
    """Return what a card is and how it is set up, as far as it tells."""
    parts = [gpu.name, numbers.size(gpu.memory_bytes), f"compute capability {gpu.compute_capability or numbers.NA}"]
    parts += ["a MIG slice"] if gpu.mig == "slice" else []
    parts += [f"power limit {numbers.quantity(gpu.power_limit_w, 'W')}"] if gpu.power_limit_w is not None else []
    parts += [f"ECC {'on' if gpu.ecc else 'off'}"] if gpu.ecc is not None else []
    parts += [f"compute mode {gpu.compute_mode.replace('_', ' ')}"] if gpu.compute_mode is not None else []
    parts += [f"VBIOS {gpu.vbios}"] if gpu.vbios else []
    parts += [f"{numbers.count(gpu.cuda_cores)} CUDA cores"] if gpu.cuda_cores else []
    parts += [f"on NUMA node {gpu.numa_node}"] if gpu.numa_node is not None else []
    parts += _clocks("SM clock", gpu.default_sm_clock_mhz, gpu.max_sm_clock_mhz)
    parts += _clocks("memory clock", gpu.default_memory_clock_mhz, gpu.max_memory_clock_mhz)
    if gpu.nvlinks is not None:
        speed = f" of {numbers.rate(gpu.nvlink_bytes_per_s, 'bytes/s')} each way" if gpu.nvlink_bytes_per_s is not None else ""
        parts.append(numbers.plural(gpu.nvlinks, "NVLink") + speed)
    return ", ".join(parts)


def _clocks(name: str, default_mhz: int | None, max_mhz: int | None) -> list[str]:
    if default_mhz is None and max_mhz is None:
        return []
    return [f"{name} {numbers.count(default_mhz)} / {numbers.count(max_mhz)} MHz (default / max)"]


def _between(machine: Machine) -> str:
    """Return how the cards are connected: which two of them in which way, unless all are in the same."""
    places = {gpu.uuid: gpu.index for gpu in machine.gpus}
    ways: dict[str, list[str]] = {}
    for pair in machine.topology:
        ways.setdefault(_way(pair), []).append(f"{places.get(pair.first, pair.first)}-{places.get(pair.second, pair.second)}")
    return "; ".join(way if len(ways) == 1 else f"{', '.join(pairs)}: {way}" for way, pairs in ways.items())


def _way(pair: CardPair) -> str:
    over_pcie = f"PCIe through {MEETING.get(pair.ancestor, pair.ancestor)} ({pair.ancestor})" if pair.ancestor else f"PCIe {numbers.NA}"
    if pair.nvlinks is None:
        return over_pcie
    return f"{numbers.plural(pair.nvlinks, 'NVLink')}{' through an NVSwitch' if pair.switched else ''}, {over_pcie}"


def _text(value: object) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return numbers.NA
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
