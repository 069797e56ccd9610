"""Which CUDA, cuDNN and Python a TensorFlow was tested with, and which driver a CUDA needs, as conf/versions.yaml has them; and versions as numbers."""

from __future__ import annotations

import re
from functools import cache

from harness.config.keys import CONF
from harness.plan.specs import Strict, convert, read_yaml

Version = tuple[int, ...]


class Tested(Strict, frozen=True):
    """A row of the tested configurations; `python` is the first and the last minor version."""

    cuda: str
    cudnn: str
    python: tuple[str, str]


class Tables(Strict, frozen=True):
    """What is published: configurations by TensorFlow's minor version, the oldest driver by CUDA's major version, and where each is from."""

    tested_source: str
    driver_source: str
    tensorflow: dict[str, Tested]
    minimum_driver: dict[str, str]


@cache
def tables() -> Tables:
    """Return conf/versions.yaml. Raises ConfigError for a damaged file."""
    return convert(read_yaml(CONF / "versions.yaml"), Tables, "conf/versions.yaml")


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
    return tables().tensorflow.get(minor(version) or "")


def minimum_driver(cuda: str | None) -> str | None:
    """Return the oldest driver for a CUDA version by its major number, None for one that the table does not hold."""
    numbers = parts(cuda)
    return tables().minimum_driver.get(str(numbers[0])) if numbers else None


def suffices(driver: str | None, cuda: str | None) -> bool | None:
    """Return whether a driver is new enough for a CUDA version, None where one of them is not known."""
    needed = minimum_driver(cuda)
    return None if needed is None or not parts(driver) else parts(driver) >= parts(needed)
