"""The training step as TensorFlow 1 ran it: the very graph of the tf.function, in a session, fed with numpy arrays through feed_dict.

Eager execution stays on for the rest of the process; the session has a graph and variables of its own, which start from the eager ones' values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.contract import Tally
from benchmarks.training import Training


class FeedDictTraining(Training):
    """A training step in a session. `feed_synthetic` feeds the seeded batch instead of photographs: the step itself, beside tf.function's."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open_step: SessionStep | None = None
        self._fed = tuple(np.asarray(part) for part in self.sample_batch)
        self.call = self._call

    def run(self, steps: int) -> Tally:
        if not self.settings.get("feed_synthetic"):
            return self._run_on_pipeline(steps)
        for _ in range(steps):
            self._losses.append(self.call(*self._fed))
        self._steps += steps
        return Tally(steps, steps * self.batch, "samples")

    def _call(self, samples: Any, labels: Any) -> np.ndarray:
        return self._session_step().run(samples, labels)

    def trace(self) -> None:
        self._session_step()

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "device": self._session_step().device}

    def proof(self) -> dict[str, Any]:
        self.close()  # the calmed start is set in the eager variables: a session opened after that begins from it
        return super().proof()

    def close(self) -> None:
        if self._open_step is not None:
            self._open_step.close()
            self._open_step = None

    def _weights(self) -> list[np.ndarray]:
        values = self._session_step().read([variable.value.handle for variable in self.net.model.trainable_variables])
        return [value.astype(np.float64) for value in values]

    def _session_step(self) -> SessionStep:
        if self._open_step is None:
            self._traced = self.function.get_concrete_function(*self.sample_batch)
            self._open_step = SessionStep(self._traced)
        return self._open_step


class SessionStep:
    """A traced function of two arrays as a graph in a session. Its variables begin with the values that the captured ones have now.

    `device` is where the session has placed them: cpu, gpu, or both names.
    """

    def __init__(self, concrete: Any) -> None:
        self._captured = list(concrete.captured_inputs)
        values = [_value(tensor) for tensor in self._captured]  # before the graph is entered: inside it nothing can be read
        given = concrete.inputs[: len(concrete.inputs) - len(values)]
        with tf.Graph().as_default() as graph:
            self._inputs = [tf.compat.v1.placeholder(tensor.dtype, tensor.shape) for tensor in given]
            starts = [tf.compat.v1.placeholder(value.dtype, value.shape) for value in values]
            self._variables = [_stand_in(tensor, start) for tensor, start in zip(self._captured, starts)]
            replacements = [*self._inputs, *(getattr(variable, "handle", variable) for variable in self._variables)]
            loss, *operations = tf.import_graph_def(
                concrete.graph.as_graph_def(),
                input_map={tensor.name: replacement for tensor, replacement in zip(concrete.inputs, replacements)},
                return_elements=[concrete.outputs[0].name, *(operation.name for operation in concrete.graph.control_outputs)],
                name="step",
            )
            self._fetched = [loss, tf.group(*operations)]
            initializers = [variable.initializer for variable in self._variables if hasattr(variable, "initializer")]
        self._session = tf.compat.v1.Session(graph=graph, config=_as_the_runtime())
        # What is no variable is a constant of the function's that has to be fed each time.
        self._constants = {start: value for start, value, stand_in in zip(starts, values, self._variables) if stand_in is start}
        told = tf.compat.v1.RunMetadata()
        options = tf.compat.v1.RunOptions(output_partition_graphs=True)
        self._session.run(initializers, dict(zip(starts, values)), options, told)
        self.device = _placed(told)

    def run(self, samples: Any, labels: Any) -> np.ndarray:
        """Do one step; returns the loss."""
        given = dict(zip(self._inputs, (np.asarray(samples), np.asarray(labels))))
        return self._session.run(self._fetched, feed_dict={**given, **self._constants})[0]

    def read(self, handles: Sequence[Any]) -> list[np.ndarray]:
        """Return the present values of the variables that stand in for those with these handles."""
        stand_ins = {id(tensor): variable for tensor, variable in zip(self._captured, self._variables)}
        return self._session.run([stand_ins[id(handle)] for handle in handles])

    def close(self) -> None:
        self._session.close()


def _value(captured: Any) -> np.ndarray:
    """The value of a captured tensor, or of the variable that a captured handle belongs to."""
    if captured.dtype != tf.resource:
        return captured.numpy()
    (told,) = captured._handle_data.shape_and_type  # noqa: SLF001 - nothing public says what a handle holds
    return tf.raw_ops.ReadVariableOp(resource=captured, dtype=tf.as_dtype(told.dtype)).numpy()


def _stand_in(captured: Any, start: Any) -> Any:
    return tf.compat.v1.Variable(start, trainable=False, use_resource=True) if captured.dtype == tf.resource else start


def _as_the_runtime() -> Any:
    """The session's configuration: the threads and devices that the runtime has pinned for everything else."""
    gpus = tf.config.get_visible_devices("GPU")
    config = tf.compat.v1.ConfigProto(
        allow_soft_placement=True,
        intra_op_parallelism_threads=tf.config.threading.get_intra_op_parallelism_threads(),
        inter_op_parallelism_threads=tf.config.threading.get_inter_op_parallelism_threads(),
    )
    if gpus:
        config.gpu_options.allow_growth = bool(tf.config.experimental.get_memory_growth(gpus[0]))
        config.gpu_options.visible_device_list = ",".join(gpu.name.rsplit(":", 1)[1] for gpu in gpus)
    else:
        config.device_count["GPU"] = 0
    return config


def _placed(told: Any) -> str:
    """The kinds of devices that variables were placed on, from the graphs that the session really ran."""
    nodes = (node for graph in told.partition_graphs for node in graph.node if node.op == "VarHandleOp")
    return "+".join(sorted({tf.DeviceSpec.from_string(node.device).device_type.lower() for node in nodes}))
