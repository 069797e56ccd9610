"""python -m harness: plan, measure, judge, report. With no argument it lists the sweeps and runs nothing."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from harness.errors import ConfigError, HarnessError

if TYPE_CHECKING:
    from harness.config import Settings
    from harness.model import Machine, Manifest, Plan
    from harness.run import Watcher
    from harness.store import Bundle
    from harness.watch.exporter import Endpoint

DOCTOR_FILE = "doctor.json"

USAGE = """\
usage: python -m harness +sweep=NAME [key=value ...]

  python -m harness +sweep=full                 measure and judge all that this machine can show
  python -m harness +sweep=full budget=45m      ... stopping after 45 minutes; what decides most comes first
  python -m harness +sweep=full plan=true       only say what it would do, and what cannot be tested and why
  python -m harness +sweep=full resume=RUN      continue a run that was interrupted or killed
  python -m harness +sweep=training only=[graph-speedup] workload.batch=32
  python -m harness.report RUN                  rebuild a report; python -m harness.judge RUN judges again
"""


def main(arguments: Sequence[str]) -> int:
    """Carry out a command line and return its exit code (0, 1, 2, 3 or 130; see README.md)."""
    from harness.config import list_sweeps, read_settings  # noqa: PLC0415 - Hydra is slow to import

    if not arguments or set(arguments) & {"-h", "--help"}:
        lines = [f"  {sweep.name:<10} {sweep.about}" for sweep in list_sweeps()]
        print(USAGE, "sweeps:", *lines, sep="\n")  # noqa: T201 - the answer of the command
        return 0
    settings = read_settings(arguments)
    from harness.measure.machine import read_machine  # noqa: PLC0415

    machine = read_machine(settings.machine_name)
    if settings.resume is not None:
        return _resume(settings, machine)
    plan = _plan(settings, machine)
    if settings.plan_only:
        from harness.console import print_plan  # noqa: PLC0415
        from harness.plan.outlook import outlook, overhead_rows, total_seconds  # noqa: PLC0415

        print_plan(plan, outlook(plan), overhead_rows(plan), total_seconds(plan), settings.budget_s)
        return 0
    from harness.store import Bundle  # noqa: PLC0415
    from harness.watch.exporter import serve  # noqa: PLC0415

    with serve(settings.prometheus_port, settings.prometheus_address) as endpoint:
        bundle = Bundle.create(settings.results_dir, _manifest(settings, machine, plan))
        if settings.sweep is not None and settings.sweep.doctor:
            _examine(settings, bundle)
        return _carry_out(settings, machine, bundle, endpoint, resumed=False)


def _plan(settings: Settings, machine: Machine) -> Plan:
    from harness.config import make_bench, to_plan  # noqa: PLC0415

    return to_plan(settings, make_bench(settings, machine))


def _fingerprint(machine: Machine) -> str:
    """Identity of machine and software, without the name in reports: what a resumed run must share with its first part."""
    from harness.measure.machine import identity  # noqa: PLC0415
    from harness.model import BENCHMARK_VERSION, stable_id  # noqa: PLC0415

    return stable_id("machine", {**identity(machine), "benchmark": BENCHMARK_VERSION})


def _manifest(settings: Settings, machine: Machine, plan: Plan) -> Manifest:
    from harness.config import claims_hash  # noqa: PLC0415
    from harness.config.ground import read_ground  # noqa: PLC0415
    from harness.measure.environment import dropped_names  # noqa: PLC0415
    from harness.measure.provenance import read_provenance  # noqa: PLC0415
    from harness.model import BENCHMARK_VERSION, Manifest  # noqa: PLC0415
    from harness.store import SCHEMA_VERSION  # noqa: PLC0415

    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Manifest(
        schema_version=SCHEMA_VERSION,
        benchmark_version=BENCHMARK_VERSION,
        created_at=now,
        name=machine.slug,
        config=settings.resolved,
        claims_hash=claims_hash(settings),
        fingerprint=_fingerprint(machine),
        machine=machine,
        plan=plan,
        provenance=read_provenance(settings.overrides),
        dropped_env=tuple(dropped_names(os.environ)),
        parts=(now,),
        ground=read_ground(settings.data, settings.checkpoint_dir or settings.results_dir),
    )


ASIDE = {
    "resume", "results_dir", "verbosity", "data.dir", "data.make", "data.on_bad", "checkpoint.dir", "budget", "telemetry.enabled", "telemetry.host_period_s",
    "telemetry.prometheus_port", "telemetry.prometheus_address", "telemetry.tensorboard",
}  # fmt: skip
"""Keys that may be given anew when a run is resumed: they change nothing of what is measured, or are held against what it began with."""


def _resume(settings: Settings, machine: Machine) -> int:
    """Go on with a bundle. Refused where machine, software, claims, plan, images or storage are not those of its first part."""
    from harness.config import claims_hash  # noqa: PLC0415
    from harness.measure.machine import as_told  # noqa: PLC0415
    from harness.store import Bundle  # noqa: PLC0415
    from harness.watch.exporter import serve  # noqa: PLC0415

    typed = [text for text in settings.overrides if text.lstrip("+").partition("=")[0] not in ASIDE]
    if settings.plan_only:
        raise ConfigError("plan=true: a run that is resumed has its plan already; leave one of plan= and resume= out")
    if typed and settings.sweep is None:
        raise ConfigError(f"{typed[0]}: a run is resumed with its own settings; give the whole command again, its +sweep= included, or resume= alone")
    bundle = Bundle.open(str(settings.resume), settings.results_dir)
    manifest = bundle.manifest
    if manifest.fingerprint != _fingerprint(as_told(machine, manifest.machine)):
        raise ConfigError(f"resume={settings.resume}: was measured on another machine or with other software ({manifest.machine.slug}); start a new run")
    if manifest.claims_hash != claims_hash(settings):
        raise ConfigError(f"resume={settings.resume}: conf/claims/ has changed since this run began; start a new run")
    if settings.sweep is not None and _plan(settings, machine) != manifest.plan:
        raise ConfigError(f"resume={settings.resume}: was planned otherwise (sweep {manifest.plan.sweep}); give the same keys, or resume={settings.resume} alone")
    settings = _on_its_ground(settings, bundle)
    with serve(settings.prometheus_port, settings.prometheus_address) as endpoint:
        return _carry_out(settings, machine, bundle, endpoint, resumed=True)


def _on_its_ground(settings: Settings, bundle: Bundle) -> Settings:
    """Return the settings of a resume with what the run itself began with where they say nothing. Refused where they say something else, or where it
    would be measured on something else."""
    from harness.config.ground import on_bad_of, read_ground, refuse_other_ground, writes_files  # noqa: PLC0415

    manifest, run = bundle.manifest, str(settings.resume)
    typed = {text.lstrip("+").partition("=")[0] for text in settings.overrides}
    on_bad = on_bad_of(manifest)
    if "data.on_bad" in typed and settings.data.on_bad != on_bad:
        raise ConfigError(f"data.on_bad={settings.data.on_bad}: resume={run} began with data.on_bad={on_bad}; leave it out, or start a new run")
    if manifest.ground is not None:
        now = read_ground(settings.data, settings.checkpoint_dir or bundle.path)
        refuse_other_ground(run, manifest.ground, now, typed, saves=writes_files(manifest.plan))
    return replace(settings, data=replace(settings.data, on_bad=on_bad))


def _examine(settings: Settings, bundle: Bundle) -> None:
    """Let the doctor look at the machine before anything is measured, and keep what it found in the bundle. It stops nothing: what is wrong with a round
    is told by the round."""
    from harness.doctor import USUAL_NOISE_S  # noqa: PLC0415
    from harness.doctor.checks import diagnose  # noqa: PLC0415
    from harness.doctor.examine import examine  # noqa: PLC0415
    from harness.doctor.show import as_json, summary  # noqa: PLC0415

    def tell(text: str) -> None:
        if settings.verbosity != "quiet":
            print(f"doctor: {text}", file=sys.stderr)  # noqa: T201 - nothing else is on the terminal yet

    slug, facts = examine(USUAL_NOISE_S, tell=tell)
    rows = diagnose(facts)
    bundle.write_cleaned(DOCTOR_FILE, as_json(slug, rows))
    tell(f"{summary(rows)} All of it is in {DOCTOR_FILE}.")


def _begin_part(bundle: Bundle) -> int:
    """Note in the manifest that another part begins, end what the last one left running, and return the part's number."""
    from harness.measure.orphans import end_orphans  # noqa: PLC0415

    end_orphans(bundle.live)
    parts = bundle.manifest.parts
    bundle.rewrite_manifest(replace(bundle.manifest, parts=(*parts, datetime.now(timezone.utc).isoformat(timespec="seconds"))))
    return len(parts)


def _carry_out(settings: Settings, machine: Machine, bundle: Bundle, endpoint: Endpoint | None, *, resumed: bool) -> int:
    """Measure, judge and report a bundle's plan, one run at a time on a machine; return the exit code."""
    from harness.config.keys import ROOT  # noqa: PLC0415
    from harness.measure.lock import machine_lock  # noqa: PLC0415
    from harness.progress import Display  # noqa: PLC0415
    from harness.report import render  # noqa: PLC0415
    from harness.run import Local, carry_out, conclude, exit_code, failed_contrasts, stop_on_signals  # noqa: PLC0415
    from harness.store import Bundle  # noqa: PLC0415
    from harness.watch.several import Several  # noqa: PLC0415
    from harness.watch.tensorboard import log_to  # noqa: PLC0415

    plan = bundle.manifest.plan
    scratch = (settings.checkpoint_dir or bundle.path) / f"scratch-{bundle.path.name}"
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    local = Local(settings.factors, settings.data.settings(), (ROOT,), scratch, cpus, settings.host_period_s, settings.tensorboard)
    with Display(settings.verbosity) as display, stop_on_signals() as stop:
        display.plan(plan, bundle.path.name, machine.slug)
        if endpoint is not None:
            endpoint.exporter.plan(plan, bundle.path.name, machine)
            display.note(endpoint.text)
        with machine_lock(bundle.path.name, tell=display.note, stop=stop):
            if resumed:  # read anew: another resume of the same run may have been waited for
                bundle = Bundle.open(bundle.path, settings.results_dir)
            part = _begin_part(bundle) if resumed else 0
            shutil.rmtree(scratch, ignore_errors=True)  # what a killed part may have left
            with log_to(bundle.tensorboard if settings.tensorboard else None, plan, machine.gpus, display.note) as log:
                watchers: list[Watcher] = [display]
                watchers += [endpoint.exporter] if endpoint is not None else []
                watchers += [log] if log is not None else []
                ended = carry_out(plan, bundle, local, Several(*watchers), stop, budget_s=settings.budget_s, part=part)
        shutil.rmtree(scratch, ignore_errors=True)
        bundle.clean_logs()
        verdicts = conclude(plan, bundle)
        records, samples = bundle.records(), bundle.telemetry_if_sound()
        for name, data in render(bundle.manifest, records, verdicts, bundle.notes, samples, bundle.examination()).items():
            bundle.write_bytes(name, data)
        display.verdicts(verdicts, ended.reason, bundle.path)
        for name, outcome in failed_contrasts(plan, records).items():
            display.note(f"failed: {name}: {outcome.reason.text if outcome.reason else outcome.state.value}")
    return exit_code(plan, records, verdicts, ended)


def run() -> int:
    """Entry point: turns an error for people into one line on stderr and its exit code."""
    try:
        return main(sys.argv[1:])
    except HarnessError as error:
        print(f"speedproof: {error}", file=sys.stderr)  # noqa: T201 - the answer of the command
        return error.exit_code
    except BrokenPipeError:
        # Whoever reads our output has seen enough (`| head`); nothing more can be said, and Python must not try when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("speedproof: interrupted; what had finished is kept", file=sys.stderr)  # noqa: T201
        return 130


if __name__ == "__main__":
    sys.exit(run())
