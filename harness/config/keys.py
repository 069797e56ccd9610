"""The typed keys that a person may set, composed by Hydra, and its complaints turned into sentences.

Knows the shape of the configuration, not its meaning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Optional, Union

from harness.errors import ConfigError
from harness.plan.specs import Factor

ROOT = Path(__file__).resolve().parent.parent.parent
CONF = ROOT / "conf"

# Hydra reads these annotations at run time and knows neither Literal nor X | None on every version that it supports.


class DeviceKind(Enum):
    auto = "auto"
    cpu = "cpu"
    gpu = "gpu"


class OnBad(Enum):
    fail = "fail"
    skip = "skip"


class Verbosity(Enum):
    quiet = "quiet"
    normal = "normal"
    debug = "debug"


@dataclass
class DevicesKeys:
    kind: DeviceKind = DeviceKind.auto
    count: Optional[int] = None  # noqa: UP045


@dataclass
class WorkloadKeys:
    name: str = "resnet50"
    target: str = ""
    runtime: str = "tf"
    sizes: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)
    proof: dict[str, Any] = field(default_factory=dict)
    computes: bool = True
    proven_as: Optional[str] = None  # noqa: UP045
    takes: list[str] = field(default_factory=list)
    batch: Optional[Union[int, str]] = None  # noqa: UP007, UP045
    image: Optional[int] = None  # noqa: UP045
    length: Optional[int] = None  # noqa: UP045
    step_ms: Optional[Union[int, float]] = None  # noqa: UP007, UP045
    devices: Optional[int] = None  # noqa: UP045


@dataclass
class LauncherKeys:
    kind: str = "local"


@dataclass
class DataKeys:
    dir: str = "data"
    make: bool = False
    on_bad: OnBad = OnBad.fail


@dataclass
class CheckpointKeys:
    dir: Optional[str] = None  # noqa: UP045
    interval: Optional[int] = None  # noqa: UP045


@dataclass
class TelemetryKeys:
    enabled: bool = True
    host_period_s: float = 1.0
    prometheus_port: Optional[int] = None  # noqa: UP045
    prometheus_address: str = "127.0.0.1"
    tensorboard: bool = False
    profile: bool = False


@dataclass
class MachineKeys:
    name: Optional[str] = None  # noqa: UP045


def _schema(factors: dict[str, Factor]) -> type:
    """Return the class of the whole configuration. The switches come from conf/factors.yaml, so that a new factor is one entry there."""
    switch = make_dataclass("SwitchKeys", [(name, Optional[str], field(default=None)) for name in factors])  # noqa: UP045
    keys: list[tuple[str, Any, Any]] = [
        ("sweep", dict[str, Any], field(default_factory=dict)),
        ("workload", WorkloadKeys, field(default_factory=WorkloadKeys)),
        ("launcher", LauncherKeys, field(default_factory=LauncherKeys)),
        ("switch", switch, field(default_factory=switch)),
        ("devices", DevicesKeys, field(default_factory=DevicesKeys)),
        ("data", DataKeys, field(default_factory=DataKeys)),
        ("checkpoint", CheckpointKeys, field(default_factory=CheckpointKeys)),
        ("machine", MachineKeys, field(default_factory=MachineKeys)),
        ("telemetry", TelemetryKeys, field(default_factory=TelemetryKeys)),
        ("thresholds", dict[str, float], field(default_factory=dict)),
        ("only", list[str], field(default_factory=list)),
        ("budget", Optional[str], field(default=None)),  # noqa: UP045
        ("alpha", Optional[float], field(default=None)),  # noqa: UP045
        ("seed", int, field(default=0)),
        ("plan", bool, field(default=False)),
        ("resume", Optional[str], field(default=None)),  # noqa: UP045
        ("results_dir", str, field(default="results")),
        ("verbosity", Verbosity, field(default=Verbosity.normal)),
    ]
    return make_dataclass("Keys", keys)


def compose_keys(arguments: list[str], factors: dict[str, Factor]) -> dict[str, Any]:
    """Return conf/ composed with the overrides. Raises ConfigError, naming the override, for whatever is wrong in it. Hydra is used as a library: it writes no folder and no log."""
    from hydra import compose, initialize_config_dir  # noqa: PLC0415 - needs most of the start-up time
    from hydra.core.config_store import ConfigStore  # noqa: PLC0415
    from hydra.core.global_hydra import GlobalHydra  # noqa: PLC0415
    from hydra.errors import HydraException  # noqa: PLC0415
    from omegaconf import OmegaConf  # noqa: PLC0415
    from omegaconf.errors import OmegaConfBaseException  # noqa: PLC0415

    schema = _schema(factors)
    ConfigStore.instance().store(name="schema", node=schema)
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        try:
            composed = compose("config", overrides=arguments)
        except (HydraException, OmegaConfBaseException) as error:
            raise ConfigError(_explain(error, arguments, factors)) from error
    container = OmegaConf.to_container(composed, resolve=True, enum_to_str=True)
    assert isinstance(container, dict)  # noqa: S101 - a mapping by its schema
    keys = {str(name): value for name, value in container.items()}
    _refuse_added(arguments, keys, schema)
    return keys


def _refuse_added(arguments: list[str], keys: dict[str, Any], schema: type) -> None:
    """Refuse a key that was added with `+` to what the schema knows: Hydra lets it in, and nothing would ever read it."""
    known: dict[str, Any] = {item.name: item.default_factory for item in fields(schema)}
    for name, value in keys.items():
        if name not in known:
            raise ConfigError(f"{_typed_as(arguments, name)}: there is no key {name}; the keys are listed in README.md")
        factory = known[name]
        if isinstance(factory, type) and is_dataclass(factory):
            inner = {item.name for item in fields(factory)}
            for leaf in value:
                if leaf not in inner:
                    raise ConfigError(f"{_typed_as(arguments, f'{name}.{leaf}')}: there is no key {leaf} in {name}; known: {', '.join(sorted(inner))}")


def _typed_as(arguments: list[str], key: str) -> str:
    return next((argument for argument in arguments if argument.lstrip("+~").partition("=")[0] == key), key)


def _explain(error: Exception, arguments: list[str], factors: dict[str, Factor]) -> str:
    """Turn Hydra's message into one line that begins with the override as it was typed."""
    chain = [error]
    while chain[-1].__cause__ is not None and isinstance(chain[-1].__cause__, Exception):
        chain.append(chain[-1].__cause__)
    text = " ".join(" ".join(str(link).split()) for link in chain)
    culprit = next((a for a in arguments if a in text), None) or next((a for a in arguments if a.lstrip("+~").split("=", 1)[0].split("@")[0] in text), None)
    shown = culprit or " ".join(arguments)
    key, _, value = shown.lstrip("+~").partition("=")
    if "Could not find" in text and "/" in text:
        group = key
        known = sorted(path.stem for path in (CONF / group).glob("*.yaml"))
        return f"{shown}: there is no {group} {value!r}; known: {', '.join(known)}"
    wanted = re.search(
        r"could not be converted to (\w+)|Value '.*?' of type '.*?' is not a valid (\w+)|is not a valid (bool)"
        r"|incompatible with type hint '\S*Union\[([^]]*\bint\b[^]]*)|Invalid value '.*?', expected one of (\[.*?\])",
        text,
    )
    if wanted:
        kind = next(group for group in wanted.groups() if group)
        words = {"Integer": "a whole number", "Float": "a number", "Boolean": "true or false", "bool": "true or false"}
        if not kind.startswith("[") and "int" in kind.split(", "):
            # The members of a union, in the order in which anybody in this process wrote it first: Python keeps one of equal types.
            words[kind] = "a number" if "float" in kind else "a whole number"
        return f"{shown}: {value!r} is not {words.get(kind, 'one of ' + kind if kind.startswith('[') else kind)}"
    if "mismatched input" in text or "no viable alternative" in text or "token recognition" in text or "extraneous input" in text:
        return f"{shown}: cannot be read; put values with commas, spaces or brackets in quotes, as in 'only=[graph-speedup,retracing]' or 'machine.name=\"a,b\"'"
    if "Ambiguous value" in text or "sweep overrides" in text.lower() or "Sweep parameters" in text:
        return f"{shown}: a list is written in brackets, as in '{key}=[{value}]', and a text with a comma in quotes, as in '{key}=\"{value}\"'"
    if "Multiple values for sweep" in text:
        return f"{' '.join(a for a in arguments if a.startswith('+sweep='))}: one sweep at a time"
    if shown.startswith("sweep="):
        return f"{shown}: a sweep is added with a plus sign, as in +{shown}"
    if any(word in text for word in ("not in", "Could not override", "Key", "append")):
        parent, _, leaf = key.rpartition(".")
        hint = f"; known: {', '.join(factors)}" if parent == "switch" else "; the keys are listed in README.md"
        return f"{shown}: there is no key {key if not parent else f'{leaf} in {parent}'}{hint}"
    return f"{shown}: {text[:200]}"
