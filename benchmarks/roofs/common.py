"""What every roof shares: a step that does a known amount of one kind of work, and the reading of its settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from benchmarks.contract import Tally, Workload
from harness.errors import ConfigError

MIB = 1 << 20


class Roof(Workload):
    """A step that does `work` of `unit`, the same again and again. `made` is what the last one left, where it left it: on the device, if it was done there.

    `step` does it; `function` and `arguments` are the tf.function behind it, if there is one, so that it can be traced beforehand. `told` says what was
    really used, given what the last step made.
    """

    def __init__(
        self,
        step: Callable[[], Any],
        work: float,
        unit: str,
        told: Callable[[Any], dict[str, Any]],
        *,
        function: Any = None,
        arguments: Sequence[Any] = (),
    ) -> None:
        self.work, self.unit = float(work), unit
        self.made: Any = None
        self._step, self._told, self._function, self._arguments = step, told, function, arguments

    def run(self, steps: int) -> Tally:
        for _ in range(steps):
            self.made = self._step()
        return Tally(steps, steps * self.work, self.unit)

    def trace(self) -> None:
        if self._function is not None:
            self._function.get_concrete_function(*self._arguments)

    def traces(self) -> int:
        return 0 if self._function is None else int(self._function.experimental_get_tracing_count())

    def facts(self) -> dict[str, Any]:
        """What was used, and `work_per_step` in the unit of the work. Steps once where no step has been done yet."""
        if self.made is None:
            self.run(1)
        return {**self._told(self.made), "work_per_step": self.work}


def traced(function: Any, arguments: Sequence[Any], work: float, unit: str, told: Callable[[Any], dict[str, Any]]) -> Roof:
    """Return the roof whose step calls the tf.function `function` with `arguments`."""
    return Roof(lambda: function(*arguments), work, unit, told, function=function, arguments=arguments)


def word(settings: dict[str, Any], name: str, choices: Sequence[str]) -> str:
    """Return the setting `name`, the first of `choices` if it is not given. Raises ConfigError for any other word."""
    value = settings.get(name, choices[0])
    if value not in choices:
        raise ConfigError(f"op={settings['op']} {name}={value}: is none of {', '.join(choices)}; choose one of them")
    return str(value)


def whole(settings: dict[str, Any], name: str, default: int) -> int:
    """Return the setting `name`, a whole number of at least 1. Raises ConfigError for anything else."""
    value = settings.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"op={settings['op']} {name}={value}: must be a whole number of at least 1")
    return value


def gpus(settings: dict[str, Any], least: int = 1) -> list[str]:
    """Return the names of the GPUs that this process may use. Raises ConfigError where they are fewer than `least`."""
    found = [gpu.name for gpu in tf.config.list_logical_devices("GPU")]
    if len(found) < least:
        needed = "a GPU" if least == 1 else f"{least} GPUs"
        raise ConfigError(
            f"op={settings['op']} needs {needed}, and {len(found)} can be used here; leave it out, or measure where there is what it needs"
        )
    return found
