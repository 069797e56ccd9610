"""One training step of a net, in every combination of the switches: `build(**settings)` is what the instrument calls.

It does the work and says what it really did; it never reads a clock but for the time spent waiting for input, and never syncs.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.contract import Tally, Value, Workload
from benchmarks.devices import device_of, first_device, tensor_float_32
from benchmarks.flops import flops_of
from benchmarks.models import FusedBatchNormalization, Net, Sizes, make_net
from benchmarks.optimizers import KerasMomentum, LeanMomentum, make_optimizer
from benchmarks.sketch import count_sketch, norm, signs
from harness.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.input import Batches

EXECUTIONS = ("eager", "graph", "xla")
POLICIES = {"fp32": "float32", "tf32": "float32", "mixed_float16": "mixed_float16", "mixed_bfloat16": "mixed_bfloat16", "float16": "float16"}
INPUTS = (
    "synthetic", "feed_dict", "python_loop", "from_generator", "tfdata_serial", "tfdata_parallel", "tfdata_prefetch", "tfdata", "tfdata_cache",
    "tfrecord", "tfdata_tuned", "prefetch_to_device", "article_s", "article_d",
)  # fmt: skip
PLACES = ("device", "host")

# Gamma of each residual block's last batch norm in a proof. With 1 the net is chaotic: rounding alone changes its updates by per cents, and no
# tolerance tells a mistake from it. With 0.2 at 64 px and batch 16 the second update still moves by 6 to 9 % under a perturbation of 1e-7, with
# 0.05 by 0.5 to 0.9 %, while a learning rate a tenth too high shows as 10 % in the first and a missing momentum as 56 % in the second.
_CALM = 0.05
_REMEMBERED_LOSSES = 4096


class Training(Workload):
    """A training step bound to its data. `unit` of work: samples. Attributes may be looked at, not changed."""

    def __init__(self, net: Net, optimizer: KerasMomentum | LeanMomentum, settings: dict[str, Any]) -> None:
        self.net, self.optimizer, self.settings = net, optimizer, settings
        self.batch = int(settings["batch"])
        self._loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        on_host = settings["batches_on"] == "host"
        self.sample_batch = _synthetic(net, self.batch, int(settings["seed"]), "/CPU:0" if on_host else first_device(), copied=on_host)
        self._batches: Batches | None = None
        self._traced: Any = None
        self._flops: float | None = None
        self._steps = 0
        self._losses: deque[Any] = deque(maxlen=_REMEMBERED_LOSSES)
        execution = settings["execution"]
        self.function = None if execution == "eager" else tf.function(self.step, jit_compile=execution == "xla")
        self.call = self.function or self.step

    def step(self, samples: Any, labels: Any) -> Any:
        """Do one step: forward, backward, update. Returns the loss (scalar, float32) before the update."""
        variables = self.net.model.trainable_variables
        with tf.GradientTape() as tape:
            loss = self._loss_function(labels, self.forward(samples))
            scaled = self.optimizer.scale_loss(loss)
        self.update(tape.gradient(scaled, variables))
        return loss

    def forward(self, samples: Any) -> Any:
        return self.net.model(samples, training=True)

    def update(self, gradients: Any) -> None:
        self.optimizer.apply(gradients)

    # -- the instrument's calls

    def run(self, steps: int) -> Tally:
        if self.settings["input"] == "synthetic":
            samples, labels = self.sample_batch
            for _ in range(steps):
                self._losses.append(self.call(samples, labels))
            self._steps += steps
            return Tally(steps, steps * self.batch, "samples")
        return self._run_on_pipeline(steps)

    def _run_on_pipeline(self, steps: int) -> Tally:
        batches = self._pipeline()
        done, waited_ns = 0, 0
        for _ in range(steps):
            asked_at = time.perf_counter_ns()
            batch = next(batches, None)
            waited_ns += time.perf_counter_ns() - asked_at
            if batch is None:
                break
            self._losses.append(self.call(*batch))
            done += 1
        self._steps += done
        return Tally(done, done * self.batch, "samples", (("input_wait_s", waited_ns / 1e9, "s"), *batches.events()))

    def trace(self) -> None:
        if self.function is not None:
            self._traced = self.function.get_concrete_function(*self.sample_batch)

    def traces(self) -> int:
        return 0 if self.function is None else int(self.function.experimental_get_tracing_count())

    def facts(self) -> dict[str, Any]:
        on_host = self.settings["batches_on"] == "host"
        return {
            **(self._batches.facts() if self._batches is not None else {}),
            "model": self.settings["model"],
            "execution": "eager" if self.function is None or tf.config.functions_run_eagerly() else ("xla" if self._xla() else "graph"),
            "xla": self._xla(),
            "precision": self._precision(),
            "loss_scaling": self.optimizer.scaled,
            "optimizer": "lean" if isinstance(self.optimizer, LeanMomentum) else "keras",
            "batch": self.batch,
            "input": self.settings["input"],
            "device": device_of(*([] if on_host else self.sample_batch[:1]), *self.net.model.trainable_variables[:1]),
            **({"batches_on": "host" if device_of(self.sample_batch[0]) == "cpu" else "device"} if on_host else {}),
            "flops_per_step": self._flops_per_step(),
            "seed": self.settings["seed"],
            "parameters": int(sum(int(np.prod(v.shape)) for v in self.net.model.trainable_variables)),
            **({"batch_norm": _batch_norm(self.net.model)} if self.net.uses_batch_norm else {}),
            **({"image": self.net.image} if self.net.image else {}),
            **({"length": self.net.length} if self.net.length else {}),
        }

    def health(self) -> dict[str, Any]:
        """The last loss, whether all losses since the last call were finite, and the first step (from 1) where one was not.
        A loss that is no number is None: it must survive strict JSON."""
        if not self._losses:
            return {}
        losses = np.array([float(loss) for loss in self._losses])
        bad = np.flatnonzero(~np.isfinite(losses))
        first = self._steps - len(losses) + 1
        if self.settings.get("events_dir"):
            from benchmarks.curves import write_curves

            write_curves(self.settings["events_dir"], losses, first, float(self.settings["lr"]))
        self._losses = deque([self._losses[-1]], maxlen=_REMEMBERED_LOSSES)
        return {
            "loss": float(losses[-1]) if np.isfinite(losses[-1]) else None,
            "finite": bad.size == 0,
            "first_non_finite_step": int(first + bad[0]) if bad.size else None,
        }

    def proof(self) -> dict[str, Any]:
        """Two steps from a calmed start, on the seeded batch: `loss` (2,), `finite` (), `update_1` and `update_2` (sketches of what each step
        added to the weights) and `update_norm` (2,). The input level plays no part: pipelines are compared by what they deliver."""
        for layer in self.net.last_norms:
            gamma = self.net.model.get_layer(layer).gamma
            gamma.assign(gamma * tf.cast(_CALM, gamma.dtype))
        samples, labels = self.sample_batch
        losses, sketches, norms = [], [], []
        before = self._weights()
        for _ in range(2):
            losses.append(float(self.call(samples, labels)))
            after = self._weights()
            update = [a - b for a, b in zip(after, before)]
            sketches.append(count_sketch(update))
            norms.append(norm(update))
            before = after
        finite = bool(np.isfinite(losses).all() and np.isfinite(norms).all())
        return {
            "loss": np.array(losses),
            "finite": np.array(finite),
            "update_1": sketches[0],
            "update_2": sketches[1],
            "update_norm": np.array(norms),
        }

    def profile(self) -> list[Value]:
        """Some steps under TensorFlow's profiler; see `benchmarks.profiling`."""
        from benchmarks.profiling import profiled

        return profiled(self.run, self.settings.get("profile_dir"))

    # -- what really runs

    def _pipeline(self) -> Batches:
        if self._batches is None:
            from benchmarks.input import batches

            settings = {**self.settings, "image": self.net.image, "classes": self.net.classes}
            self._batches = batches(self.settings["input"], **settings).warm(self.settings.get("page_cache"))
        return self._batches

    def _weights(self) -> list[np.ndarray]:
        return [_numbers(v) for v in self.net.model.trainable_variables]

    def _flops_per_step(self) -> float | None:
        """What the traced graph multiplies, the same for XLA and for a session since both run that graph; None without one. Counted when first asked."""
        if self._flops is None and self._traced is not None:
            self._flops = flops_of(self._traced.graph)
        return self._flops

    def _xla(self) -> bool:
        if self.function is None:
            return False
        if self._traced is None:
            return self.settings["execution"] == "xla"
        return bool(self._traced.function_def.attr["_XlaMustCompile"].b)

    def _precision(self) -> str:
        """The level whose arithmetic the layers really carry out; the level asked for where a proof has its code run in float32."""
        compute = {layer.compute_dtype for layer in self.net.model.layers if layer.weights}
        stored = {str(v.dtype) for v in self.net.model.trainable_variables}
        if self.settings["policy_float32"] and compute == stored == {"float32"}:
            return str(self.settings["precision"])
        if compute == {"float32"}:
            return "tf32" if tensor_float_32(self.net.model.trainable_variables[0]) else "fp32"
        if len(compute) > 1 or len(stored) > 1:
            return f"{'+'.join(sorted(compute))} on {'+'.join(sorted(stored))}"
        return compute.pop() if compute == stored else f"mixed_{compute.pop()}"


def build(**settings: Any) -> Training:
    """Build the training step that `settings` describe.

    Levels: `execution` eager|graph|xla, `precision` fp32|tf32|mixed_float16|mixed_bfloat16|float16 (tf32 is switched on by the runtime),
    `batch_norm` keras|fused, `optimizer` keras|lean, `input` synthetic or a pipeline of `benchmarks.input`. Sizes: `model`, `batch`, `image` or `length`,
    `classes`, `width`, `depth`, `vocabulary`, `seed`, `lr`, `momentum`; input folder: `data_dir`, and what `benchmarks.input` takes. `batches_on` host
    leaves the synthetic batch in the host's memory, so that every step copies it to the device; device is the default.
    For people: `events_dir` (where `health` leaves the losses as TensorBoard reads them), `profile_dir` (where `profile` leaves its trace).
    For proofs: `perturb` u multiplies every weight by 1 + u or 1 - u, `policy_float32` runs the precision's code with float32 arithmetic.

    Raises ConfigError for an unknown level, an impossible size or a contradiction.
    """
    refuse_saves(settings, "a training step by itself is not saved; benchmarks.checkpoint:build is the job that is")
    return make(settings)


def make(settings: dict[str, Any], kind: type[Training] = Training) -> Training:
    """As `build`, with the class of the workload to choose: tests put a spoiled step in its place and see that proofs notice."""
    settings = {**_DEFAULTS, **{k: v for k, v in settings.items() if v is not None}}
    _refuse_contradictions(settings)
    policy = "float32" if settings["policy_float32"] else POLICIES[settings["precision"]]
    keras.utils.set_random_seed(int(settings["seed"]))
    kept = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_global_policy(policy)
    try:
        sizes = {name: int(settings[name]) for name in ("image", "length", "classes", "width", "depth", "vocabulary") if name in settings}
        net = make_net(settings["model"], Sizes(**sizes, fused=settings["batch_norm"] == "fused", xla=settings["execution"] == "xla"))
    finally:
        keras.mixed_precision.set_global_policy(kept)
    if settings["input"] != "synthetic" and net.image is None:
        raise ConfigError(f"input={settings['input']} feeds photographs, but {settings['model']} takes none; use input=synthetic")
    _perturb(net.model.trainable_variables, float(settings["perturb"]))
    if settings["input"] == "feed_dict" and kind is Training:
        from benchmarks.feed_dict import FeedDictTraining

        kind = FeedDictTraining
    scaled = settings["precision"] == "mixed_float16"
    optimizer = make_optimizer(settings["optimizer"], net.model.trainable_variables, float(settings["lr"]), float(settings["momentum"]), scaled)
    return kind(net, optimizer, settings)


_DEFAULTS: dict[str, Any] = {
    "model": "resnet50", "batch": 32, "seed": 0, "lr": 0.01, "momentum": 0.9, "perturb": 0.0, "policy_float32": False,
    "execution": "graph", "precision": "fp32", "batch_norm": "keras", "optimizer": "keras", "input": "synthetic", "batches_on": "device",
}  # fmt: skip


def refuse_saves(settings: Mapping[str, Any], why: str) -> None:
    """Raise ConfigError, with the reason, for levels of saving that a workload does not have: it would bear their names and do what it always does."""
    for factor, default in (("checkpoint", "none"), ("storage", "own")):
        if settings.get(factor) not in (None, default):
            raise ConfigError(f"{factor}={settings[factor]} cannot be had here: {why}")


def _refuse_contradictions(settings: dict[str, Any]) -> None:
    for name, levels in (
        ("execution", EXECUTIONS),
        ("precision", tuple(POLICIES)),
        ("batch_norm", ("keras", "fused")),
        ("input", INPUTS),
        ("batches_on", PLACES),
    ):
        if settings[name] not in levels:
            raise ConfigError(f"{name}={settings[name]} is no level; choose one of {', '.join(levels)}")
    if settings["input"] == "feed_dict" and settings["execution"] != "graph":
        raise ConfigError(f"input=feed_dict contradicts execution={settings['execution']}: a session runs a graph; ask for execution=graph")
    if settings["batches_on"] == "host" and (settings["execution"], settings["input"]) != ("graph", "synthetic"):
        asked = f"execution={settings['execution']} input={settings['input']}"
        raise ConfigError(
            f"batches_on=host is about a batch that a graph fetches from the host at each step, asked was {asked}; ask for graph and synthetic"
        )
    if int(settings["batch"]) < 1:
        raise ConfigError(f"batch={settings['batch']} is no batch; it must be at least 1")
    for name in ("xla", "jit_compile"):
        if name in settings and bool(settings[name]) != (settings["execution"] == "xla"):
            raise ConfigError(
                f"execution={settings['execution']} contradicts {name}={settings[name]}: XLA is a level of execution, ask for execution=xla"
            )


def _synthetic(net: Net, batch: int, seed: int, place: str, *, copied: bool) -> tuple[Any, Any]:
    """A seeded batch that lies at `place` before the first step. numpy makes it, so that it is the same on every device. `copied`: into memory of
    TensorFlow's own, where a pipeline's batches lie; what numpy has allocated goes to a GPU another way."""
    random = np.random.default_rng(seed)
    with tf.device(place):
        samples = tf.identity(net.inputs(random, batch))
        labels = tf.identity(random.integers(0, net.classes, batch, dtype=np.int64))
        return (tf.raw_ops.DeepCopy(x=samples), tf.raw_ops.DeepCopy(x=labels)) if copied else (samples, labels)


def _perturb(variables: Any, by: float) -> None:
    if by:
        for index, variable in enumerate(variables):
            value = np.asarray(variable).astype(np.float64)
            variable.assign((value * (1.0 + by * signs(index, value.shape))).astype(np.asarray(variable).dtype))


def _numbers(variable: Any) -> np.ndarray:
    return np.asarray(variable).astype(np.float64)


def _batch_norm(model: keras.Model) -> str:
    kinds = {"fused" if isinstance(x, FusedBatchNormalization) else "keras" for x in model.layers if isinstance(x, keras.layers.BatchNormalization)}
    return "+".join(sorted(kinds))
