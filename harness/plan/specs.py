"""What people write under conf/: claims, factors, workloads, sweeps, ladders, as strict typed values.

The text of a file becomes one of these or a `ConfigError` that names the file, the place in it and the value. Nothing here knows the machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from harness.errors import ConfigError
from harness.model import Arrangement, Better, Decide, Driver, Published, Role, Rule, Scalar, Scale, Statistic


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value whose every field is known by name; a misspelt one is refused."""


class Needs(Strict, frozen=True):
    """What a machine must have. All that are given must hold."""

    device: str | None = None
    compute_capability: float | None = None
    compute_capability_below: float | None = None
    gpus: int | None = None
    cores: int | None = None
    card_memory_gib: float | None = None
    package: str | None = None
    platform: str | None = None
    ability: str | None = None  # what this user may do here: a key of harness.plan.scope.ABILITIES


class Level(Strict, frozen=True):
    """One position of a switch; see the head of conf/factors.yaml."""

    needs: Needs = Needs()
    excludes: dict[str, list[str]] = {}
    settings: dict[str, Scalar] = {}
    env: dict[str, str] = {}
    interpreter: str | None = None
    not_built: str | None = None
    arithmetic: bool = False  # of a factor that changes no arithmetic, this level computes with other code: it has a proof of its own
    delivers: bool = False  # it reads samples: proven to deliver the same ones as DELIVERY's reference does


class Factor(Strict, frozen=True):
    """A switch: its baseline level and its levels by name. One that changes no arithmetic is left at its default in proofs.

    One that is not had `everywhere` can only be thrown in workloads that name it in their `takes`: elsewhere another level would be a label and no more.
    """

    default: str
    levels: dict[str, Level]
    arithmetic: bool = True
    everywhere: bool = True


class Expected(Strict, frozen=True):
    """Rough times of a workload, used by the plan until this machine has been measured."""

    start_s: float = 10.0
    step_s: float = 0.1


class WorkloadSpec(Strict, frozen=True):
    """A thing to measure: where its builder is and the sizes it has by default on each kind of device."""

    name: str
    target: str
    runtime: str = "tf"
    sizes: dict[str, dict[str, Scalar]] = {}
    expected: dict[str, Expected] = {}
    proof: dict[str, Scalar] = {}  # sizes in which arms are proven equal, over the default sizes
    computes: bool = True  # false: it trains nothing, so only what its input delivers can be proven
    proven_as: str | None = None  # the workload whose step it takes: proven once, there
    takes: list[str] = []  # factors that are not had everywhere and that it can bring about


class TermSpec(Strict, frozen=True):
    weight: float
    arm: str
    measure: str
    statistic: Statistic | None = None


class RuleSpec(Strict, frozen=True):
    """A rule over all arms of a run, with its edges; see OverArms in `harness.model`."""

    name: Rule
    busy: float
    gain: float | None = None
    wait: float | None = None


class CaseSpec(Strict, frozen=True):
    """One comparison of a claim, as written; `harness.plan.estimands` and `harness.plan.armless` say what each `form` becomes.

    An arm is a mapping of factor to level; it may also hold `sizes`, `workload` and `driver` of its own, and `device: cpu` where the run is on a GPU.
    In place of all arms a case may name a set of conf/arms.yaml.
    """

    id: str
    title: str
    form: str
    workload: str = "resnet50"
    role: Role = Role.JUDGED
    measure: str = "throughput"
    statistic: Statistic | None = None
    scale: Scale | None = None
    levels: dict[str, str] = {}
    arms: dict[str, dict[str, Any]] = {}
    over: dict[str, list[int | float]] = {}
    terms: list[TermSpec] = []
    rule: RuleSpec | None = None
    driver: Driver = Driver.BLOCKS
    arrangement: Arrangement | None = None
    sizes: dict[str, Scalar] = {}
    scaled: dict[str, dict[str, Scalar]] = {}
    band: tuple[float | None, float | None] | None = None
    null: float | None | msgspec.UnsetType = msgspec.UNSET
    margin: float = 0.02
    rounding: float = 0.0
    unit: str = ""
    better: Better = Better.HIGHER
    killed_counts_as: float | None = None
    crew: int = 1  # of each arm so many processes live at once, as neighbours: arrangement together
    of_card: bool = False  # a level in bytes, as a share of the card's memory
    prove: bool | None = None
    needs: Needs = Needs()
    given_folder: bool | None = None  # true: only where checkpoint.dir= names a folder to save into; false: only where it does not
    sweeps: list[str] = []
    apart: bool = False  # long, or short for another one: it runs in the sweeps that it names or where only= asks for it, and not in full


class ClaimSpec(Strict, frozen=True):
    """One row of the list of claims, as written in conf/claims/<id>.yaml."""

    id: str
    order: int
    group: str
    source: str
    statement: str
    exact_hardware: dict[str, Scalar] | None = None
    needs: Needs = Needs()
    not_built: str | None = None
    makes_testable: str | None = None
    decide: Decide = Decide.ALL
    deciding_case: str | None = None
    published: list[Published] = []
    notes: str = ""
    cases: list[CaseSpec] = []


class ControlSpec(Strict, frozen=True):
    """What the controls are measured with."""

    workload: str = "resnet50"
    sizes: dict[str, Scalar] = {}


class SweepSpec(Strict, frozen=True):
    """Which cases run, how sure, how long. `tag` picks the cases that name it in their `sweeps`; the tag "full" picks all.

    `sizes`: "article" uses the claims' own sizes, "scaled" the smaller ones of a case where it has them for the device (then a reading).
    """

    name: str
    about: str
    tag: str
    sizes: str = "article"
    claims: str | list[str] = "all"
    alpha: float = 0.01
    preliminary: bool = False
    looks: tuple[int, ...] = (3, 5, 8, 12)
    control_rounds: int = 5
    control: ControlSpec = ControlSpec()
    ladder: bool = False
    budget: str | None = None
    quads: int | None = None  # accepted quads a round; None: as many as fill half a minute
    in_order: bool = False  # `claims` is a list, measured round by round, what stands first in it first; most controls, and proofs, before second rounds
    doctor: bool = False  # the machine is examined first, and the bundle keeps what was found
    fills_budget: bool = False  # jobs that go on for a time (size `lasts_s`) go on as long as the budget lets their first look
    block_s: float | None = None  # None: half a second, a whole one on a GPU or where steps are slow


class Rung(Strict, frozen=True):
    """One switch of the ladder: its position when all is off and when all is on."""

    factor: str
    off: str
    on: str
    job: bool = False  # it shows in whole jobs alone, on real files: device-resident blocks have neither input nor saves


SpecT = TypeVar("SpecT")

# The C one reads all claims in a tenth of the time; it is missing where PyYAML was built without libyaml.
_SAFE_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: Path) -> Any:  # noqa: ANN401 - YAML holds anything
    """Return the content of a YAML file. Raises ConfigError with the file's name and the line where it does not parse."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _SAFE_LOADER)  # noqa: S506 - either is a safe loader
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise ConfigError(f"conf/{path.parent.name}/{path.name}, line {line}: is no YAML ({error.problem}); mend the file") from error
    except OSError as error:
        raise ConfigError(f"conf/{path.parent.name}/{path.name} cannot be read ({error.strerror}); is this a complete clone?") from error


def convert(data: object, kind: type[SpecT], where: str) -> SpecT:
    """Return `data` as a value of `kind`. Raises ConfigError with `where`, the place inside and the value's type."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from error


def _with_arms(data: Any, shared: dict[str, dict[str, Any]], where: str) -> Any:  # noqa: ANN401 - YAML holds anything
    """Return a claim's data with each set of arms that a case names put in its place. What is no claim at all is left to `convert` to refuse."""
    cases = data.get("cases") if isinstance(data, dict) else None
    for case in cases if isinstance(cases, list) else []:
        named = case.get("arms") if isinstance(case, dict) else None
        if isinstance(named, str):
            if named not in shared:
                raise ConfigError(f"{where}, case {case.get('id')}: there is no set of arms {named!r}; known: {', '.join(shared)} (conf/arms.yaml)")
            case["arms"] = shared[named]
    return data


def load_claims(folder: Path) -> list[ClaimSpec]:
    """Return every claim of a folder in the order of reports. Raises ConfigError for a damaged file or a name that differs from its id."""
    claims = []
    path = folder.parent / "arms.yaml"
    shared = convert(read_yaml(path), dict[str, dict[str, Any]], "conf/arms.yaml") if path.exists() else {}
    for path in sorted(folder.glob("*.yaml")):
        where = f"conf/claims/{path.name}"
        claim = convert(_with_arms(read_yaml(path), shared, where), ClaimSpec, where)
        if claim.id != path.stem:
            raise ConfigError(f"conf/claims/{path.name}: id is {claim.id!r}, but must be the file's name; rename one of them")
        claims.append(claim)
    return sorted(claims, key=lambda claim: (claim.order, claim.id))
