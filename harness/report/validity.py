"""How far the figures can be trusted: controls, noise, foreign load, flags, failed trials, unequal pairs, and the wrong verdicts to expect."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.model import Flag, Scale, State, TrialRecord
from harness.report import numbers
from harness.report.cards import Table
from harness.report.tables import estimate_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.report.index import Index

MOST_LINES = 8
INFORMATION = frozenset({"power_cap"})
"""Flags that tell of what is as it should be: a card under load runs at its power limit."""
OF_TRIALS = frozenset({"foreign_load", "foreign_load_unknown", "steal", "throttled"})
"""Flags that a quad may have, or, with the trial among their numbers, a job or a single call: that was kept, where a quad may have been repeated."""
CONTROL_SYMBOLS = {"held": "✓ held", "failed": "✗ failed", "not shown": "? not shown"}


@dataclass(frozen=True)
class Check:
    """One line of the validity box. `state`: good, warn, bad, or plain where nothing is rated. `lines` are the particulars."""

    state: str
    title: str
    text: str
    lines: tuple[str, ...] = ()


def validity(index: Index, notes: Sequence[str]) -> list[Check]:
    """Return the checks in order of weight; what could not be checked says so."""
    checks = [_controls(index), _expected_wrong(index), _noise(index), _load(index), _failed(index), _proofs(index), _flags(index)]
    left_out = _left_out(index)
    checks += [left_out] if left_out else []
    images = _images(index)
    checks += [images] if images else []
    if len({record.boot_id for record in index.records}) > 1 or any(record.part for record in index.records):
        parts = len({record.part for record in index.records})
        checks.append(Check("plain", "Resumed", f"The records come from {numbers.plural(parts, 'part')}; each part repeated its controls."))
    if notes:
        checks.append(Check("warn", "Notes on the bundle", "Reading the bundle brought up the following.", _few(list(notes))))
    return checks


def _few(lines: list[str]) -> tuple[str, ...]:
    rest = len(lines) - MOST_LINES
    return (*lines[:MOST_LINES], f"and {rest:,} more") if rest > 0 else tuple(lines)


def _controls(index: Index) -> Check:
    words = Counter(result.word for result in index.verdicts.controls)
    if not words:
        return Check("warn", "Controls", "No control has been judged, so nothing shows that the instrument works here.")
    said = ", ".join(f"{words[word]} {word}" for word in ("held", "failed", "not shown") if words[word])
    if words["failed"]:
        return Check("bad", "Controls", f"{said}. A failed control means that figures of this run cannot be trusted.")
    if words["not shown"]:
        return Check("warn", "Controls", f"{said}. This machine cannot show an effect of 5 % now; larger effects stand.")
    return Check("good", "Controls", f"{said}: known effects were found, and none where there is none.")


def controls_table(index: Index) -> Table | None:
    """Return the controls with expected and measured value, None where none was judged."""
    planned = {control.id: control for control in index.plan.controls}
    rows = []
    for result in index.verdicts.controls:
        control = planned.get(result.control)
        kind = f"{control.kind.value}, {control.device}, {control.arrangement.value.replace('_', ' ')}" if control else numbers.NA
        shown = estimate_text(result.estimate, "") if result.estimate else numbers.missing(result.reason.text)
        rows.append((result.control, kind, numbers.ratio(result.expected), shown, CONTROL_SYMBOLS.get(result.word, result.word), result.reason.text))
    return Table("Controls", ("control", "kind", "known value", "measured (interval)", "result", "why"), tuple(rows)) if rows else None


def _expected_wrong(index: Index) -> Check:
    judged, wrong = index.verdicts.judged, index.verdicts.expected_wrong
    if judged == 0:
        return Check("plain", "Wrong verdicts to expect", "None: nothing is judged yet.")
    chance = numbers.edge(index.verdicts.alpha, "share")
    text = f"{numbers.significant(wrong, 2)} of {numbers.plural(judged, 'verdict')} (each may err with a chance of {chance})."
    return Check("good" if wrong < 1 else "warn", "Wrong verdicts to expect", text)


def _noise(index: Index) -> Check:
    spreads = []
    for _, case, result in index.joined():
        estimate = result.estimate if result else None
        if case.estimand.scale is Scale.LOG and estimate is not None and estimate.n > 1 and estimate.spread is not None:
            spreads.append(estimate.spread)
    if not spreads:
        return Check("plain", "Noise", "No spread is known: no ratio has two rounds yet.")
    middle, most = statistics.median(spreads), max(spreads)
    text = f"Rounds of one comparison differ by {numbers.percent(middle)} (median standard deviation; {numbers.percent(most)} at most)."
    return Check("good" if middle <= 0.05 else "warn", "Noise", text)


def _load(index: Index) -> Check:
    counted = [quad for record in index.records for quad in record.quads if quad.index > 0]
    kept = [quad for quad in counted if quad.accepted]
    loads = [quad.foreign_cores for quad in kept if quad.foreign_cores is not None]
    whole = _load_of_trials(index)
    if not counted:
        return whole or Check("plain", "Foreign load", "No quads of blocks were measured.")
    text = f"{len(kept):,} of {numbers.plural(len(counted), 'quad')} accepted; {_others(loads)}."
    throttled = sum(quad.throttled_s or 0.0 for quad in kept)
    steal = [quad.steal_cores for quad in kept if quad.steal_cores is not None]
    lines = [f"throttled for {numbers.seconds(throttled)} in all"] if throttled > 0 else []
    lines += [f"the hypervisor took up to {numbers.cores(max(steal))}"] if steal and max(steal) > 0.01 else []
    busy = len(kept) < 0.8 * len(counted) or (loads and max(loads) > index.plan.thresholds.get("foreign_cores", 0.05))
    state = "warn" if busy or lines or (whole and whole.state == "warn") else "good"
    return Check(state, "Foreign load", f"{text} {whole.text}" if whole else text, tuple(lines))


def _others(loads: Sequence[float]) -> str:
    if not loads:
        return "load unknown"
    return f"other processes used {numbers.cores(statistics.median(loads))} in the median, {numbers.cores(max(loads))} at most"


def _load_of_trials(index: Index) -> Check | None:
    """Return what is said of the load beside jobs and single calls, of which none is repeated; None where none was timed."""
    done = [record for record in index.records if record.outcome.state is State.COMPLETED]
    told = [reading.value for record in done for reading in record.readings if reading.name == "foreign_cores"]
    flagged = sum(1 for record in done if any(_of_a_trial(flag) and flag.code != "foreign_load_unknown" for flag in record.flags))
    if not told:
        return None
    loads = [value for value in told if value is not None]
    kept = f"{numbers.plural(flagged, 'round is', 'rounds are')} flagged for it and kept" if flagged else "no round is flagged for it"
    text = f"{numbers.plural(len(told), 'job or single call', 'jobs and single calls')} timed: {_others(loads)}; {kept}."
    return Check("warn" if flagged else "good", "Foreign load", text)


def _of_a_trial(flag: Flag) -> bool:
    return flag.code in OF_TRIALS and "trial" in flag.numbers


def _failed(index: Index) -> Check:
    bad = {State.FAILED, State.TIMED_OUT, State.INVALID}
    trials = [(record.contrast, trial) for record in index.records for trial in record.trials if trial.outcome.state in bad]
    repeated = sum(1 for record in index.records if record.attempt > 0)
    total = sum(len(record.trials) for record in index.records)
    again = f" {numbers.plural(repeated, 'round')} repeated." if repeated else ""
    skipped = [(record.contrast, trial) for record in index.records for trial in record.trials if trial.outcome.state is State.SKIPPED]
    lines = _few(_causes(trials + skipped))
    if not trials and skipped:
        text = f"{numbers.plural(len(skipped), 'trial')} of {total:,} skipped: what they are about cannot be had here.{again}"
        return Check("good", "Trials", text, lines)
    if not trials:
        return Check("good", "Trials", f"All {numbers.plural(total, 'trial')} ended as planned.{again}" if total else "None has run yet.")
    text = f"{len(trials + skipped):,} of {numbers.plural(total, 'trial')} did not complete; no timing was taken from them.{again}"
    return Check("warn", "Trials", text, lines)


def _causes(trials: Sequence[tuple[str, TrialRecord]]) -> list[str]:
    """Return a line for each way in which trials of these contrasts ended, with its reason and how often it happened."""
    causes = Counter(
        f"{contrast}: {trial.outcome.state.value.replace('_', ' ')}"
        f"{f' in phase {trial.outcome.phase}' if trial.outcome.phase else ''}{f', {trial.outcome.reason.text}' if trial.outcome.reason else ''}"
        for contrast, trial in trials
    )
    return [f"{text} ({times} times)" if times > 1 else text for text, times in causes.items()]


def _proofs(index: Index) -> Check:
    titles = {proof.id: proof.title for proof in index.plan.proofs}
    results = index.verdicts.proofs
    if not results:
        return Check("plain", "Equal results", "No pair of arms has been checked for equal results yet." if titles else "No pair needed checking.")
    wrong = [r for r in results if r.passed is False]
    unknown = [r for r in results if r.passed is None]
    lines = [f"{titles.get(r.proof, r.proof)}: {r.reason.text}" for r in [*wrong, *unknown]]
    said = f"{sum(1 for r in results if r.passed):,} of {numbers.plural(len(results), 'pair')} proven to compute the same"
    said += f", {len(wrong)} not" if wrong else ""
    said += f", {len(unknown)} could not be checked" if unknown else ""
    return Check("warn" if lines else "good", "Equal results", f"{said}.", _few(lines))


def _left_out(index: Index) -> Check | None:
    """Return what is said of files that were left out because they cannot be decoded; None where they are none of the run's business, or end it."""
    trials = [trial.used for record in index.records for trial in record.trials]
    told = dict.fromkeys((n, str(used.get("skipped_names") or "")) for used in trials if isinstance(n := used.get("skipped_files"), int))
    if not told:
        return None
    counts = {n for n, _ in told}
    if counts == {0}:
        return Check("good", "Files left out", "None: all could be decoded (data.on_bad=skip would have left out others).")
    most = f"{'Up to ' if len(counts) > 1 else ''}{numbers.plural(max(counts), 'file or record', 'files or records')}"
    lines = [f"{n:,}: {names or 'their names were not told'}" for n, names in told if n]
    return Check("warn", "Files left out", f"{most} of every pass over the images, as they cannot be decoded (data.on_bad=skip).", _few(lines))


def _images(index: Index) -> Check | None:
    """Return what is said of a person's own images: how many of them were measured, and in which form; None where they were the suite's."""
    trials = [trial.used for record in index.records for trial in record.trials]
    trials = [used for used in trials if isinstance(used.get("set_samples"), int) and (used.get("set_found") or used.get("set_copied"))]
    if not trials:
        return None
    # What was left out as bad had been drawn too.
    taken = {int(used["set_samples"] or 0) + int(used.get("skipped_files") or 0): used.get("set_found") for used in trials}
    drawn = sorted(n for n, found in taken.items() if found is None or n < int(found))
    known = [int(found) for found in taken.values() if found is not None]
    if drawn:
        of = f"{max(known):,}" if known else "the many"
        text = (
            f"{' or '.join(f'{n:,}' for n in drawn)} of {of} samples in data.dir were measured: drawn, the same ones in every arm that takes so many."
        )
    else:
        text = f"All {numbers.plural(max(taken), 'sample')} in data.dir were measured."
    others = max(int(used.get("other_pictures") or 0) for used in trials)
    text += f" {numbers.plural(others, 'picture')} of other kinds than JPEG beside them {'was' if others == 1 else 'were'} not." if others else ""
    copied = dict.fromkeys(str(used.get("input")) for used in trials if used.get("set_copied"))
    text += f" The form that the set lacks was written below the suite's data folder, and read there by {', '.join(copied)}." if copied else ""
    return Check("plain", "Images", text)


def _flags(index: Index) -> Check:
    texts = {"late_warmup": "quads that still differed from the later ones, dropped as warm-up"}
    count: Counter[str] = Counter()
    for record in index.records:
        for flag in record.flags:
            code = f"{flag.code} beside jobs or single calls" if _of_a_trial(flag) else flag.code
            texts.setdefault(code, flag.text)
            count[code] += 1
        # Every start's first quad is warm-up by design: that is no flag.
        count.update(code for quad in record.quads for code in quad.flags if code != "warmup")
    if not count:
        return Check("good", "Flags", "None was raised.")
    lines = [f"{code} ({n:,}): {texts[code]}" if code in texts else f"{code} ({n:,})" for code, n in count.most_common()]
    if INFORMATION.issuperset(count):
        return Check("good", "Flags", f"{numbers.plural(sum(count.values()), 'flag')} raised, for information only.", _few(lines))
    return Check("warn", "Flags", f"{numbers.plural(sum(count.values()), 'flag')} raised; no round was dropped for them.", _few(lines))
