"""The words of the house as frozen values: what is planned, what was read, what was concluded.

Everything here is plain data that survives a trip through JSON unchanged. This module knows no clock, no file, no framework, and imports
nothing of ours, so that each room can be understood with this page alone.

Units: names end in their unit (`_ns`, `_s`, `_bytes`, `_cores`). Time stamps `t0_ns`/`t1_ns` are of the monotonic clock
(`time.perf_counter_ns`) and are comparable within one boot only; `started_at` is UTC wall clock in ISO 8601.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import Enum

Scalar = str | int | float | bool | None

LARGEST = "max"
"""As the value of a size: the largest that works, found by a search of its own before it is used."""

BENCHMARK_VERSION = "3"
"""Version of the benchmark definition. Raised whenever a workload, a level or the way of measuring changes what a figure means;
figures of different versions are never compared without a mark."""


def stable_id(prefix: str, content: object) -> str:
    """Return `prefix-` plus ten hex digits of the SHA-256 of `content` as canonical JSON: the same content has the same id everywhere."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"{prefix}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


# ---------------------------------------------------------------- reasons and outcomes


@dataclass(frozen=True)
class Reason:
    """Why something is as it is: a code for programs, a sentence for people, the numbers that led to it."""

    code: str
    text: str
    numbers: dict[str, Scalar] = field(default_factory=dict)


class State(str, Enum):
    """How a trial or a round ended. Only COMPLETED enters an estimate; TIMED_OUT may bound one."""

    COMPLETED = "completed"
    INVALID = "invalid"  # it ran, but what ran is not what was asked (or its loss was not finite, its counts fell short)
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    SKIPPED = "skipped"  # its workload told that there is no such thing here (harness.errors.Unsupported)
    INTERRUPTED = "interrupted"
    NOT_RUN = "not_run"


@dataclass(frozen=True)
class Outcome:
    """A state with its reason; `phase` names where a time-out or a failure struck (spawn, import, build, trace, first, warmup, facts, blocks, once, end)."""

    state: State
    reason: Reason | None = None
    phase: str | None = None

    @property
    def out_of_memory(self) -> bool:
        """Whether it failed for want of memory. A SIGKILL that nobody of ours sent is most often the kernel's; the parent notes it as possibly so."""
        reason = self.reason if self.state is State.FAILED else None
        return reason is not None and (reason.code == "out_of_memory" or reason.numbers.get("possibly_out_of_memory") is True)


COMPLETED = Outcome(State.COMPLETED)


# ---------------------------------------------------------------- measures


class Better(str, Enum):
    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"


# ---------------------------------------------------------------- cells and processes


@dataclass(frozen=True)
class Cell:
    """One level for every factor, a workload, its sizes and a kind of device: the thing that gets measured.

    `levels` maps factor to level (`{"execution": "graph", ...}`); `sizes` holds the rest that the workload is built with (batch, image, ...).
    """

    workload: str
    device: str
    levels: dict[str, str]
    sizes: dict[str, Scalar]

    @property
    def id(self) -> str:
        """A short id from the content alone: equal cells have equal ids on every machine."""
        return stable_id("cell", asdict(self))


class Driver(str, Enum):
    """What the lead of a trial does."""

    BLOCKS = "blocks"  # timed stretches of steps, on request
    ONCE = "once"  # one call that answers with readings or a proof
    JOB = "job"  # a given number of steps with events on the way: saves, waits
    SUPERVISE = "supervise"  # a job that is killed and started again until it has ended


class Arrangement(str, Enum):
    """How the trials of a round share the time."""

    TURNS_OF_BLOCKS = "turns_of_blocks"  # all live together, A B B A block by block (a duet, or more)
    TURNS_OF_TRIALS = "turns_of_trials"  # A, B, B, A: each alone in a process of its own
    SOLO = "solo"  # each trial once, alone
    TOGETHER = "together"  # all live and step at the same time, side by side: is there room for all of them?


@dataclass(frozen=True)
class Process:
    """One process of a crew. `target` is `module:function` of the workload's builder, called with `settings` as keyword arguments.

    `interpreter` None means the parent's own; `env` is laid over the allow-listed environment; `cpus` None means all usable ones;
    `memory_limit_bytes` is an address-space limit, `cgroup_memory_bytes` one that the kernel enforces on all that the process makes it hold, page
    cache included. `runtime` names the module under `harness.measure.runtime` that syncs and reads memory.
    """

    role: str
    target: str
    settings: dict[str, Scalar] = field(default_factory=dict)
    runtime: str = "tf"
    interpreter: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    cpus: tuple[int, ...] | None = None
    memory_limit_bytes: int | None = None
    cgroup_memory_bytes: int | None = None
    gpus: tuple[str, ...] | None = None  # UUIDs; None: as the parent sees them, () none
    rank: int = 0


@dataclass(frozen=True)
class Deadlines:
    """How long each phase of a worker may take, in seconds, before it is ended and the trial is timed out there."""

    spawn_s: float = 60.0  # until `hello`
    import_s: float = 120.0
    build_s: float = 300.0
    trace_s: float = 300.0
    first_s: float = 600.0  # tracing by the first call, compilation, autotuning
    warmup_s: float = 60.0  # one warm-up step; slower than this is a bound on speed, not a rate
    block_s: float = 120.0
    once_s: float = 900.0
    job_s: float = 1800.0
    end_s: float = 20.0


@dataclass(frozen=True)
class Trial:
    """A crew of processes that measures one cell. `lead` is the role that speaks for the crew; the others only run beside it.

    `call` is the workload's method for driver ONCE: "outcome" (readings), "proof" (arrays), "profile" (readings, and a trace for people), or "probe" (a
    few steps: is there room for it?). `ghost_every` n > 0: in every other block one extra, uncounted step for every n counted ones is run, which slows
    the trial by a known factor (the positive control). `kills`: how often a supervised lead is killed before it may finish.
    """

    id: str
    cell: str
    processes: tuple[Process, ...]
    lead: str = "lead"
    driver: Driver = Driver.BLOCKS
    call: str = "outcome"
    ghost_every: int = 0
    kills: int = 0
    deadlines: Deadlines = Deadlines()


# ---------------------------------------------------------------- plan


class Purpose(str, Enum):
    """What a contrast is measured for; decides order (controls, proofs, profiles, then the rest) and where it is shown."""

    CONTROL = "control"
    PROOF = "proof"
    PROFILE = "profile"  # a look inside that no case reads
    CLAIM = "claim"


@dataclass(frozen=True)
class Search:
    """The largest whole value of the size `size` with which a trial works: doubled from `start` until it does not (at most to `most`), then bisected
    until the two ends differ by no more than the share `precision`. Every round of it is one probe, its value is in the trial's `asked`."""

    size: str
    start: int = 8
    most: int = 65536
    precision: float = 1 / 32

    def limits(self, records: Iterable[RoundRecord], trial: str) -> tuple[int, int | None]:
        """Return the largest value with which `trial` worked (0: none so far) and the least above it with which it did not (None: none so far).

        Want of memory is an answer, and so is a step too slow to wait for. Any other failure may be an accident, and counts when it happens twice.
        """
        worked: list[int] = [0]
        refused: list[int] = []
        broke: dict[int, int] = {}
        for record in records:
            found = record.trial(trial)
            value = None if found is None else found.asked.get(self.size)
            if found is None or not isinstance(value, int):
                continue
            trains = next((r.value for r in record.readings if r.trial == trial and r.name == "trains"), None)
            if found.outcome.state is State.COMPLETED and trains is not None:
                (worked if trains else refused).append(value)
            elif found.outcome.state is State.TIMED_OUT:
                refused.append(value)
            elif found.outcome.state in {State.FAILED, State.INVALID}:
                broke[value] = broke.get(value, 0) + 1
        works = max(worked)
        return works, min((value for value in [*refused, *(v for v, times in broke.items() if times > 1)] if value > works), default=None)


@dataclass(frozen=True)
class Contrast:
    """Trials that are measured against one another in rounds of one arrangement.

    Several cases may read the same contrast. `looks` are the numbers of completed rounds after which the cases are judged; the last one is the
    most that will be run. `quads` is how many accepted quads a round of blocks wants, `block_s` how long one block should last.
    `absence`: after the quads the last trial is ended and the others go on for two quads (does an idle partner cost anything?). `standby`: a control
    that is measured only once some comparison has taken its arrangement. `search`: its rounds are the probes of a search.
    """

    id: str
    title: str
    purpose: Purpose
    trials: tuple[Trial, ...]
    arrangement: Arrangement
    looks: tuple[int, ...] = (3, 5, 8, 12)
    quads: int = 3
    block_s: float = 0.5
    absence: bool = False
    standby: bool = False
    expected_round_s: float = 60.0
    priority: int = 0  # of contrasts at the same look, the lower goes first: 0 decides a claim, 1 is judged beside it, 2 informs
    decides: int = 0  # how many claims' verdicts hang on it: with as much time, what decides more goes first
    place: int = 0  # where a sweep has an order (from 1): of contrasts with as many rounds, the lower goes first whatever it costs
    search: Search | None = None


IDLE_ROUND = "idle"
"""In place of a round's id: samples of the machine at rest, taken before the first round of a part."""


@dataclass(frozen=True)
class Round:
    """One replicate of a contrast, as handed to a session. `attempt` counts repeats of a round whose partner died (at most two)."""

    contrast: str
    index: int
    attempt: int
    trials: tuple[Trial, ...]
    arrangement: Arrangement
    seed: int
    quads: int = 3
    block_s: float = 0.5
    absence: bool = False

    @property
    def id(self) -> str:
        return f"{self.contrast}/{self.index}.{self.attempt}"


class Statistic(str, Enum):
    """How a trial's readings of one measure become one number per round."""

    TOTAL_RATE = "total_rate"  # all counted work of the accepted blocks / all their time
    VALUE = "value"  # the one value
    MEDIAN = "median"
    MAX = "max"


class Scale(str, Enum):
    LOG = "log"
    LINEAR = "linear"
    EXACT = "exact"


@dataclass(frozen=True)
class Term:
    """`weight` x (what the statistic of `measure` says of `trial` in the rounds of `contrast`); logarithms are taken on the log scale."""

    weight: float
    contrast: str
    trial: str
    measure: str
    statistic: Statistic = Statistic.TOTAL_RATE


@dataclass(frozen=True)
class Estimand:
    """What is estimated: the weighted terms added up on one scale, plus the offset. Two terms with weights 1 and -1 make a ratio, four an interaction.
    Terms of several contrasts are paired by round index, which is valid because rounds are independent."""

    scale: Scale
    terms: tuple[Term, ...]
    offset: float = 0.0


class Role(str, Enum):
    """Whether a case decides something (JUDGED), informs (READING), or states what cannot be otherwise (FACT)."""

    JUDGED = "judged"
    READING = "reading"
    FACT = "fact"


class Rule(str, Enum):
    """What may be said of many arms at once; `harness.judge.rules` finds out whether it is so."""

    ALARM_PRECISION = "alarm_precision"  # of the arms with little use of the GPU, the share that has a switch worth throwing
    ALARM_RECALL = "alarm_recall"  # of the arms that have such a switch, the share with little use of the GPU
    FASTEST_BUSY = "fastest_busy"  # of the fastest arms of each workload and its sizes, the share that keeps the GPU busy
    WAITING = "waiting"  # of the arms with little use of the GPU, the share that mostly waits for input


@dataclass(frozen=True)
class OverArms:
    """What a case says of all arms of a run, instead of an estimand: its value is a share of the arms that `rule` picks from `cells`.

    `busy` is the edge of "little use" (a share of time in which a kernel runs), `gain` the ratio of throughputs above which a switch is worth
    throwing, `wait` the share of step time above which an arm mostly waits. Which of the last two a rule needs, its name says.
    """

    rule: Rule
    busy: float
    gain: float | None = None
    wait: float | None = None
    cells: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """One estimand with the band claimed for it, in natural units (a ratio of 2..5 is lo=2, hi=5; None is open).

    `null` is "no effect" (1 for a ratio, 0 for a difference, None where there is none); `margin` and `rounding` belong to the claim and are
    fixed before the run. `killed_counts_as`: the value that an out-of-memory kill of the treatment stands for, None where it is a failure.
    `proofs` are ids of the proofs that the arms compute the same: unless all of them passed, the case gets no verdict.
    An estimand without terms is a figure that was known when the plan was made, its offset; or, with `over`, a rule over many arms.
    """

    id: str
    title: str
    role: Role
    estimand: Estimand
    lo: float | None = None
    hi: float | None = None
    null: float | None = None
    margin: float = 0.02
    rounding: float = 0.0
    killed_counts_as: float | None = None
    proofs: tuple[str, ...] = ()
    why_reading: str | None = None  # why a case with a band decides nothing here ("scaled down: 96 px instead of 224")
    unit: str = ""  # of the estimate, "" for a ratio ("x" in reports)
    better: Better = Better.HIGHER  # which side of the null is a gain: display only
    over: OverArms | None = None


class Decide(str, Enum):
    ALL = "all"
    ANY = "any"
    CASE = "case"


@dataclass(frozen=True)
class Published:
    """A figure that others published, shown beside ours. `value` is in the words of the source."""

    what: str
    value: str
    source: str


@dataclass(frozen=True)
class Claim:
    """One row of the list: what is said, by whom, how it is decided, and what of it can be measured here.

    `exact_hardware` names the hardware of the article's own figure; None where the article names none. `carried_over` is true where this
    machine is another one. `not_testable` gives the reason if no case could be planned; then `cases` is empty.
    """

    id: str
    group: str
    source: str
    statement: str
    cases: tuple[Case, ...] = ()
    decide: Decide = Decide.ALL
    deciding_case: str | None = None
    exact_hardware: str | None = None
    carried_over: bool = False
    published: tuple[Published, ...] = ()
    notes: str = ""
    not_testable: Reason | None = None
    makes_testable: str | None = None
    left_out: tuple[str, ...] = ()  # cases that could not be planned here, each with its reason

    @property
    def in_another_sweep(self) -> bool:
        """Whether nothing but the choice of the sweep keeps this claim from being measured."""
        return self.not_testable is not None and self.not_testable.code == "not_in_sweep"


class ControlKind(str, Enum):
    NEGATIVE = "negative"
    POSITIVE = "positive"
    ABSENCE = "absence"


@dataclass(frozen=True)
class Control:
    """A claim about the instrument, judged in every run. `contrast` is the control duet it is read from."""

    id: str
    kind: ControlKind
    contrast: str
    device: str
    arrangement: Arrangement


@dataclass(frozen=True)
class Proof:
    """A comparison of what two arms compute: contrasts of driver ONCE, call "proof". `baseline` and `perturbed` give the measured tolerance.

    `precision` is the treatment's own (fp32, tf32, mixed_float16, ...); in reduced precision only loss and finiteness count.
    """

    id: str
    title: str
    baseline: str
    perturbed: str
    treatment: str
    precision: str


@dataclass(frozen=True)
class Ladder:
    """Switches added one by one and left out one by one. `rungs` and `leave_one_out` are ids of reading cases; `total` is all off -> all on."""

    id: str
    title: str
    rungs: tuple[str, ...]
    leave_one_out: tuple[str, ...]
    total: str


@dataclass(frozen=True)
class Plan:
    """All that is needed to measure and, from the bundle alone, to judge again. `cells` maps cell id to cell."""

    sweep: str
    alpha: float
    preliminary: bool
    seed: int
    cells: dict[str, Cell]
    contrasts: tuple[Contrast, ...]
    claims: tuple[Claim, ...]
    controls: tuple[Control, ...]
    proofs: tuple[Proof, ...]
    ladders: tuple[Ladder, ...] = ()
    thresholds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Done:
    """A study has nothing more to ask for, and why."""

    reason: Reason


# ---------------------------------------------------------------- what was read


@dataclass(frozen=True)
class Reading:
    """One number of one trial. A timed block is a reading named "work": `value` units of work in `n` steps between `t0_ns` and `t1_ns`.

    `value` None needs a `reason`. `ghost` counts steps that ran inside the block but are in neither `value` nor `n`. `turn` is the position of a block
    within its quad (0, 1, 2, ...), `quad` the index of the quad; both None for readings that are no blocks.
    """

    trial: str
    name: str
    value: float | None
    unit: str
    reason: str | None = None
    role: str = "lead"
    rank: int = 0
    t0_ns: int | None = None
    t1_ns: int | None = None
    n: int | None = None
    ghost: int = 0
    quad: int | None = None
    turn: int | None = None
    part: str = "main"  # "main", or "absence" for the quads after the partner was ended


@dataclass(frozen=True)
class Flag:
    """Something that a reader of the figures should know about a round; never a reason to drop it silently."""

    code: str
    text: str
    numbers: dict[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Quad:
    """One palindrome of turns (A B B A); of trials that live together, one block of all of them at once (A B). Foreign load decides `accepted`, the
    result never does. Quad 0 is warm-up and never accepted.

    Loads are averages over the quad's blocks, in cores: 0.05 is five per cent of one core. None: could not be read.
    """

    index: int
    order: str
    accepted: bool
    foreign_cores: float | None = None
    idle_partner_cores: float | None = None
    steal_cores: float | None = None
    throttled_s: float | None = None
    flags: tuple[str, ...] = ()
    part: str = "main"


@dataclass(frozen=True)
class TrialRecord:
    """How one trial of a round went. `asked` and `used` carry the same keys where something was asked for (execution, precision, xla, device,
    replicas, batch, threads ...); `phases_s` maps phase (spawn, import, build, trace, first, warmup, blocks, end) to seconds.

    `peak_rss_bytes` is the lead's own VmHWM. `log` names the process's log inside the bundle, `proof` the arrays' file.
    """

    id: str
    cell: str
    outcome: Outcome
    asked: dict[str, Scalar] = field(default_factory=dict)
    used: dict[str, Scalar] = field(default_factory=dict)
    phases_s: dict[str, float] = field(default_factory=dict)
    overlapped_start: bool = False
    peak_rss_bytes: int | None = None
    log: str | None = None
    proof: str | None = None


@dataclass(frozen=True)
class RoundRecord:
    """One line of records.jsonl: a round as it ended."""

    round: str
    contrast: str
    index: int
    attempt: int
    arrangement: Arrangement
    order: str
    seed: int
    outcome: Outcome
    trials: tuple[TrialRecord, ...]
    readings: tuple[Reading, ...]
    quads: tuple[Quad, ...]
    flags: tuple[Flag, ...]
    started_at: str
    cost_s: float
    boot_id: str
    part: int = 0  # 0 for the first start of a run, 1 after the first resume, ...

    def trial(self, trial: str) -> TrialRecord | None:
        return next((t for t in self.trials if t.id == trial), None)


# ---------------------------------------------------------------- what was concluded


class Word(str, Enum):
    CONFIRMED = "CONFIRMED"
    EXCEEDED = "EXCEEDED"
    WEAKER = "WEAKER"
    REFUTED = "REFUTED"
    REVERSED = "REVERSED"
    INCONCLUSIVE = "INCONCLUSIVE"
    NOT_TESTABLE = "NOT TESTABLE"
    READING = "READING"
    FACT = "FACT"


@dataclass(frozen=True)
class Estimate:
    """A point and an interval in natural units. `low` may be 0 and `high` None (unbounded) for a bound.

    `method`: t, bound, exact, welch; stated (known without a round); arms (a share of arms, `n` of them; those whose interval leaves open on which
    side they lie make it an interval). `rounds` are the per-round values behind it, `looks` the (n, low, high) of each look taken,
    `spread` the standard deviation of the rounds' effects on the case's scale (None for n < 2), `level` the confidence of the interval.
    """

    point: float | None
    low: float
    high: float | None
    n: int
    method: str
    level: float
    looks: tuple[tuple[int, float, float], ...] = ()
    rounds: tuple[float, ...] = ()
    spread: float | None = None


@dataclass(frozen=True)
class Verdict:
    """A word with its reason. `open`: the regions that the interval touches; `more_rounds`: how many more would settle it at today's spread
    (None: not known, or settled)."""

    word: Word
    reason: Reason
    open: tuple[str, ...] = ()
    more_rounds: int | None = None


@dataclass(frozen=True)
class ArmResult:
    """A trial's level over all completed rounds, for display: total work / total time, phases, peak memory."""

    trial: str
    cell: str
    rate: float | None
    unit: str
    rounds: int
    peak_rss_bytes: int | None
    reason: str | None = None


@dataclass(frozen=True)
class ArmFound:
    """What a rule over arms found of one of them: `busy` and `wait` are shares, `gain` is the ratio that `switch` makes, the best that was measured
    from this arm. `says` is the rule's word on it."""

    cell: str
    says: str
    busy: Estimate | None = None
    wait: Estimate | None = None
    gain: Estimate | None = None
    switch: str = ""


@dataclass(frozen=True)
class CaseResult:
    case: str
    title: str
    estimate: Estimate | None
    verdict: Verdict
    arms: tuple[ArmResult, ...] = ()
    equivalence: str | None = None  # "proven", "not proven: ...", None where nothing is compared
    found: tuple[ArmFound, ...] = ()  # of a rule over arms, arm by arm


@dataclass(frozen=True)
class ClaimResult:
    claim: str
    verdict: Verdict
    cases: tuple[CaseResult, ...]
    carried_over: bool = False


@dataclass(frozen=True)
class ControlResult:
    """`word`: "held", "failed" (exit code 3) or "not shown" (amber). `expected` is the known value."""

    control: str
    word: str
    expected: float | None
    estimate: Estimate | None
    reason: Reason


@dataclass(frozen=True)
class ProofResult:
    """`passed` None: could not be carried out. `numbers` hold the differences and the measured tolerances."""

    proof: str
    passed: bool | None
    reason: Reason


@dataclass(frozen=True)
class ArmEnergy:
    """One figure of what energy an arm took, in the rounds of one contrast: the mean of the rounds with its interval, which nothing is claimed of.

    `measure`: work_per_j and power_w of its cards, host_work_per_j and host_power_w of the processors; j_per_work and host_j_per_work are the inverse of
    the work per joule, interval and all. `reason` says why there is no estimate, why it has no interval or has not been looked at yet, or what is wrong with it.
    """

    contrast: str
    trial: str
    cell: str
    measure: str
    unit: str
    estimate: Estimate | None
    reason: Reason | None = None


@dataclass(frozen=True)
class LadderResult:
    """Whether the rungs' product agrees with the measured total within their intervals. Values are ratios."""

    ladder: str
    product: float | None
    product_low: float | None
    product_high: float | None
    total: float | None
    agrees: bool | None


@dataclass(frozen=True)
class Verdicts:
    """All that `judge` has to say of a run; written as verdicts.json."""

    claims: tuple[ClaimResult, ...]
    controls: tuple[ControlResult, ...]
    proofs: tuple[ProofResult, ...]
    ladders: tuple[LadderResult, ...]
    alpha: float
    preliminary: bool
    judged: int
    expected_wrong: float
    holm: dict[str, str] = field(default_factory=dict)
    energy: tuple[ArmEnergy, ...] = ()


# ---------------------------------------------------------------- the machine


@dataclass(frozen=True)
class Gpu:
    """A card, or a MIG slice of one, which has a UUID of its own. `index` is the card's by PCI bus order, for people; programs go by `uuid`.

    `mig` is "enabled" or "disabled" for a card, "slice" for a slice; None (as everywhere below it): the card or its driver does not tell.
    """

    index: int
    name: str
    uuid: str
    memory_bytes: int | None
    compute_capability: float | None
    pci_id: str | None = None  # bus id, such as 00000000:17:00.0
    vbios: str | None = None
    power_limit_w: float | None = None  # as set
    ecc: bool | None = None
    mig: str | None = None
    compute_mode: str | None = None  # default, exclusive_process, prohibited
    cuda_cores: int | None = None  # a slice's own number is not told
    numa_node: int | None = None
    default_sm_clock_mhz: int | None = None  # what applications get unless somebody sets another clock: the card's own, not that setting
    default_memory_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    max_memory_clock_mhz: int | None = None
    nvlinks: int | None = None  # those that are up; 0: it has some, and none is; a slice uses none
    nvlink_bytes_per_s: float | None = None  # of each, one way


@dataclass(frozen=True)
class CardPair:
    """How two cards, named by their UUIDs, are connected. None: they or their driver do not tell.

    `ancestor` is where their ways over PCIe meet, in the words of `nvidia-smi topo -m`: PIX (at one switch), PXB (at several), PHB (at a host bridge),
    NODE (between host bridges of one memory node), SYS (between memory nodes). `nvlinks` are those that are up from one to the other; where they go
    through an NVSwitch (`switched`), those of the card that has fewer to it.
    """

    first: str
    second: str
    ancestor: str | None
    nvlinks: int | None = None
    switched: bool | None = None


@dataclass(frozen=True)
class Machine:
    """What a run was measured on: identity only, no momentary values. `gpu_reason` says why `gpus` is empty."""

    slug: str
    cpu_model: str
    cores: int  # usable: affinity and cgroup quota
    memory_bytes: int
    gpus: tuple[Gpu, ...]
    gpu_reason: str | None
    kernel: str
    python: str
    packages: dict[str, str]
    cpu_flags: tuple[str, ...] = ()
    container: str | None = None
    numa_nodes: int | None = None
    abilities: tuple[str, ...] = ()  # what this user may do here beyond measuring: memory_cgroup, fuse
    gpu_driver: str | None = None
    cuda_driver: str | None = None  # the newest CUDA that the driver speaks
    cpu_governor: str | None = None  # several, joined by commas, where cores differ
    cpu_sockets: int | None = None
    cpu_physical_cores: int | None = None  # of all sockets; a core that runs two threads counts once
    framework_build: dict[str, Scalar] = field(default_factory=dict)  # CUDA, cuDNN, GPU architectures, compiler: as TensorFlow's build says
    disk: str | None = None  # where the suite lies; that of the saves is in their records
    topology: tuple[CardPair, ...] = ()  # each two of `gpus`, in PCI bus order


@dataclass(frozen=True)
class Images:
    """A person's own set of images: a digest of its files' names below its folder and of their sizes, how many they are, and their bytes in all."""

    digest: str
    files: int
    total_bytes: int


@dataclass(frozen=True)
class Volume:
    """What a folder lies on: the type of its file system in the kernel's words (ext4, nfs4), and the drive behind it with its kind; a digest of what is
    mounted where no drive of this machine's is. None: the kernel does not tell."""

    file_system: str | None = None
    drive: str | None = None


@dataclass(frozen=True)
class Ground:
    """What a run is measured on beside the machine, without a path: whose images (None: the suite's photographs), what the images lie on, and what
    jobs save to. A run that is resumed goes on where it began."""

    images: Images | None = None
    data: Volume = Volume()
    saves: Volume = Volume()


@dataclass(frozen=True)
class Manifest:
    """manifest.json: everything about a run that is known before its first round."""

    schema_version: int
    benchmark_version: str
    created_at: str
    name: str
    config: dict[str, object]
    claims_hash: str
    fingerprint: str
    machine: Machine
    plan: Plan
    provenance: dict[str, Scalar]  # commit, changed (does the tree differ from it), command
    dropped_env: tuple[str, ...] = ()  # names only
    parts: tuple[str, ...] = ()  # started_at of each part
    ground: Ground | None = None  # None: of a run that was begun before it was kept


@dataclass(frozen=True)
class DoctorFinding:
    """One finding of the doctor, as doctor.json has it; its fields are documented in harness/doctor/__main__.py."""

    area: str
    check: str
    code: str
    level: str
    found: str
    why: str = ""
    advice: str = ""
    subject: str | None = None
    numbers: dict[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Examination:
    """doctor.json: what the doctor found before the first round. `schema` is that of the doctor's JSON."""

    schema: int
    findings: tuple[DoctorFinding, ...]
