"""Checks of the host: pure functions from facts to a finding."""

from __future__ import annotations

from harness.doctor.facts import Facts, Storage
from harness.doctor.findings import Finding, error, info, ok, unknown, warning
from harness.report import numbers

LEAST_MEMORY_BYTES, ENOUGH_MEMORY_BYTES = 1 << 30, 4 << 30
"""Below the first not even one small arm runs; two arms of ResNet-50 side by side want the second."""

LEAST_STORAGE_BYTES, ENOUGH_STORAGE_BYTES = 1 << 30, 5 << 30
"""Below the first a run dies writing; the checkpoint claims alone keep a few saves of 200 MB, the input claims several forms of the photographs."""

SLOW_TIME_SOURCES = ("hpet", "acpi_pm", "xen", "jiffies", "refined-jiffies", "pit")
"""A reading of one of these is a call into the kernel, or into the host, of a microsecond or more."""

LONGEST_VALUE = 60


def cores(facts: Facts) -> Finding:
    """All cores that are there may be used; a quota throttles in the midst of a block."""
    host = facts.host
    usable = {"present": host.cores_present, "allowed": host.cores_allowed, "quota": host.quota_cores}
    if host.quota_cores is not None and host.quota_cores < host.cores_allowed:
        found = f"a control group's quota of {host.quota_cores:g} cores on {host.cores_allowed} that may be used"
        why = "threads for all cores are started, then all of them are stopped for the rest of each tenth of a second"
        return warning("quota", found, why, "give the container whole cores (cpuset) instead of a quota", **usable)
    if host.cores_present is not None and host.cores_allowed < host.cores_present:
        why = "figures are those of the allowed cores; who works on the others shares memory, caches and clocks"
        return info(
            "affinity", f"{host.cores_allowed} of {host.cores_present} cores may be used", why, "name their number with the figures", **usable
        )
    return ok(f"{numbers.plural(host.cores_allowed, 'core')}, all of which may be used", **usable)


def governor(facts: Facts) -> Finding:
    """Clocks are not lowered at rest."""
    host = facts.host
    if not host.governors:
        return unknown("the frequency governor", host.why("governors"), "clocks belong to the host and may change at any time")
    told = ", ".join(f"{name} on {numbers.plural(count, 'core')}" for name, count in sorted(host.governors.items()))
    if set(host.governors) == {"performance"}:
        return ok(f"governor {told}")
    why = "a core that was idle begins its block slowly, which hurts the arm that waits more"
    return warning("not_performance", f"governor {told}", why, "cpupower frequency-set -g performance (as root)")


def turbo(facts: Facts) -> Finding:
    """Whether cores may exceed their nominal clock."""
    host = facts.host
    if host.turbo is None:
        return unknown("whether turbo is on", host.why("turbo"))
    why = "with it, clocks depend on temperature and on how many cores are busy; side-by-side arms share that, absolute figures do not repeat as well"
    return info("on" if host.turbo else "off", f"turbo is {'on' if host.turbo else 'off'}", why if host.turbo else "", turbo=host.turbo)


def smt(facts: Facts) -> Finding:
    """Whether two hardware threads share a core."""
    host = facts.host
    if host.smt is None:
        return unknown("whether cores are shared by hardware threads (SMT)", host.why("smt"))
    why = "two hardware threads share a core: twice as many are counted as can work at full speed" if host.smt else ""
    return info("on" if host.smt else "off", f"SMT is {'on' if host.smt else 'off'}", why, smt=host.smt)


def time_source(facts: Facts) -> Finding:
    """Reading the clock is cheap and even."""
    host = facts.host
    if host.time_source is None:
        return unknown("the time source", host.why("time_source"))
    if host.time_source in SLOW_TIME_SOURCES:
        why = "each reading of the clock takes a microsecond or more"
        found = f"time source {host.time_source}"
        return warning("slow", found, why, "boot with clocksource=tsc if the processor's is stable", source=host.time_source)
    if host.time_source == "tsc":
        return ok("time source tsc", source="tsc")
    return info("not_tsc", f"time source {host.time_source}", "as a rule read without a call into the kernel, as tsc is", source=host.time_source)


def memory(facts: Facts) -> Finding:
    """Enough memory is free for two arms side by side."""
    host = facts.host
    if host.memory_free_bytes is None:
        return unknown("how much memory is free", host.why("memory_free_bytes"))
    found = f"{numbers.size(host.memory_free_bytes)} of {numbers.size(host.memory_bytes)} memory free"
    told = {"free_bytes": host.memory_free_bytes, "bytes": host.memory_bytes}
    if host.memory_free_bytes < LEAST_MEMORY_BYTES:
        return error("too_little", found, "workers will be killed for want of memory", "end other programs, or raise the container's limit", **told)
    if host.memory_free_bytes < ENOUGH_MEMORY_BYTES:
        why = f"two arms of ResNet-50 side by side want about {numbers.size(ENOUGH_MEMORY_BYTES)}"
        return warning("little", found, why, "end other programs, or choose smaller sizes (workload.batch=, workload.image=)", **told)
    return ok(found, **told)


def swap(facts: Facts) -> Finding:
    """Nothing is swapped out, or in, while we measure."""
    host, noise = facts.host, facts.noise
    if noise.swapped_bytes:
        found = f"{numbers.size(noise.swapped_bytes)} swapped in or out while we watched"
        return warning(
            "swapping",
            found,
            "a block that waits for swap measures the disk",
            "end other programs, or swapoff -a (as root)",
            bytes=noise.swapped_bytes,
        )
    if host.swap_bytes is None or host.swap_used_bytes is None:
        return unknown("whether swap is in use", host.why("swap_bytes"))
    if host.swap_used_bytes:
        found = f"{numbers.size(host.swap_used_bytes)} of {numbers.size(host.swap_bytes)} swap in use"
        return info(
            "in_use",
            found,
            "what was swapped out may have to come back in the midst of a block",
            "see whether memory is short",
            bytes=host.swap_used_bytes,
        )
    return ok("no swap in use" if host.swap_bytes else "no swap", bytes=0)


def huge_pages(facts: Facts) -> Finding:
    """How transparent huge pages are set."""
    host = facts.host
    if host.huge_pages is None:
        return unknown("the setting of transparent huge pages", host.why("huge_pages"))
    why = "with `always`, large arrays need fewer translations, and the kernel compacts memory now and then; compare only with machines set the same way"
    return info("setting", f"transparent huge pages: {host.huge_pages}", why, setting=host.huge_pages)


def results_storage(facts: Facts) -> Finding:
    """There is room for results and checkpoints."""
    return _storage(facts.host.results, "results/", "results_dir=")


def data_storage(facts: Facts) -> Finding:
    """There is room for the photographs."""
    return _storage(facts.host.data, "data/", "data.dir= with data.make=true")


def _storage(place: Storage, name: str, key: str) -> Finding:
    if place.free_bytes is None:
        return unknown(f"the space left under {name}", place.reason or "the file system does not tell")
    found = f"{numbers.size(place.free_bytes)} free under {name}"
    told = {"free_bytes": place.free_bytes}
    if not place.writable:
        return error(
            "read_only", f"{name} cannot be written by this user", "a run keeps everything there", f"make it writable, or name another folder ({key})"
        )
    if place.free_bytes < LEAST_STORAGE_BYTES:
        return error("too_little", found, "a run ends when it can no longer write", f"make room, or name another folder ({key})", **told)
    if place.free_bytes < ENOUGH_STORAGE_BYTES:
        why = "claims about checkpoints and input write several GiB"
        return warning("little", found, why, f"make room, or name another folder ({key})", **told)
    return ok(found, **told)


def other_runs(facts: Facts) -> Finding:
    """No other run measures on this machine now."""
    host = facts.host
    if host.lock_holder is not None:
        why = "one measurement at a time: a second run waits, and so that the first is not disturbed, neither TensorFlow nor noise was looked at now"
        return warning("measuring", f"another measurement is going on: {host.lock_holder}", why, "ask again when it has ended")
    if "lock_holder" in host.missing:
        return unknown("whether another run measures here", host.why("lock_holder"))
    return ok("no other run measures here")


def variables(facts: Facts) -> Finding:
    """No environment variable changes what is measured without being seen."""
    given = facts.host.variables
    shown = [f"{name}={_short(value)}" for name, value in given.items() if value is not None]
    dropped = [name for name, value in given.items() if value is None]
    kept_back = f"not passed on to workers: {', '.join(dropped)}" if dropped else ""
    if shown:
        found = f"workers get {', '.join(shown)}" + (f"; {kept_back}" if kept_back else "")
        why = "they may change every figure, and another machine does not have them"
        return warning("set", found, why, "unset them unless they are meant", names=", ".join(given))
    if dropped:
        return info("dropped", kept_back, names=", ".join(dropped))
    return ok("no variable that may change figures is set")


def _short(value: str) -> str:
    return value if len(value) <= LONGEST_VALUE else value[: LONGEST_VALUE - 3] + "..."
