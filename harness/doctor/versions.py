"""Which CUDA, cuDNN and Python a TensorFlow was tested with, and which driver a CUDA needs, as published; and versions as numbers. Data, no opinion."""

from __future__ import annotations

import re
from dataclasses import dataclass

TESTED_SOURCE = "TensorFlow, tested build configurations, https://www.tensorflow.org/install/source#gpu"
DRIVER_SOURCE = "NVIDIA, CUDA minor version compatibility, https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"

Version = tuple[int, ...]


@dataclass(frozen=True)
class Tested:
    """A row of the tested configurations; `python` is the first and the last minor version."""

    cuda: str
    cudnn: str
    python: tuple[str, str]


TESTED = {
    "2.12": Tested("11.8", "8.6", ("3.8", "3.11")),
    "2.13": Tested("11.8", "8.6", ("3.8", "3.11")),
    "2.14": Tested("11.8", "8.7", ("3.9", "3.11")),
    "2.15": Tested("12.2", "8.9", ("3.9", "3.11")),
    "2.16": Tested("12.3", "8.9", ("3.9", "3.12")),
    "2.17": Tested("12.3", "8.9", ("3.9", "3.12")),
    "2.18": Tested("12.5", "9.3", ("3.9", "3.12")),
    "2.19": Tested("12.5", "9.3", ("3.9", "3.12")),
    "2.20": Tested("12.5", "9.3", ("3.9", "3.13")),
    "2.21": Tested("12.5", "9.3", ("3.10", "3.13")),
}

MINIMUM_DRIVER = {11: "450.80.02", 12: "525", 13: "580"}
"""Of Linux, by CUDA's major version: within one, a driver of its first release runs what a later one has built."""


def parts(version: str | None) -> Version:
    """Return the leading numbers of a version: "2.21.0rc1" is (2, 21, 0); () where it begins with none."""
    told = re.match(r"\d+(?:\.\d+)*", version or "")
    return tuple(int(number) for number in told[0].split(".")) if told else ()


def minor(version: str | None) -> str | None:
    """Return "2.21" of "2.21.0"; None where there are no two numbers."""
    numbers = parts(version)
    return f"{numbers[0]}.{numbers[1]}" if len(numbers) > 1 else None


def row_of(version: str | None) -> Tested | None:
    """Return the tested configuration of a TensorFlow, None for one that the table does not hold."""
    return TESTED.get(minor(version) or "")


def minimum_driver(cuda: str | None) -> str | None:
    """Return the oldest driver for a CUDA version by its major number, None for one that the table does not hold."""
    numbers = parts(cuda)
    return MINIMUM_DRIVER.get(numbers[0]) if numbers else None


def suffices(driver: str | None, cuda: str | None) -> bool | None:
    """Return whether a driver is new enough for a CUDA version, None where one of them is not known."""
    needed = minimum_driver(cuda)
    return None if needed is None or not parts(driver) else parts(driver) >= parts(needed)
