"""Errors that a person reads: one sentence that says what was wrong, where, with which value, and what to do.

Every command ends a `HarnessError` with that one line on stderr and its `exit_code`; anything else that escapes is a defect of ours.
"""

from __future__ import annotations

CONTROL_FAILED = 3
"""Exit code after a failed control: what a broken instrument measured is not to be used."""


class HarnessError(Exception):
    """Something the person at the keyboard can act on. `exit_code` is what the command ends with."""

    exit_code = 1


class ConfigError(HarnessError):
    """Refused before anything ran: a wrong type, an unknown key, a contradiction, a demand that the machine cannot meet."""


class BundleError(HarnessError):
    """A run bundle could not be read: missing, damaged, hostile, or of a newer schema."""


class Unsupported(HarnessError):
    """What is to be measured cannot be had here at all: the device, or the framework as it is installed, has no such thing. Workloads raise it, at best
    while they are built: their trial is skipped with this reason, which is a result and no failure."""

    code = "unsupported"


class MeasureError(HarnessError):
    """The instrument itself could not do its work (no lock, no worker could be started at all)."""

    exit_code = 2


class Interrupted(HarnessError):
    """Stopped by Ctrl-C or SIGTERM; what had finished is kept."""

    exit_code = 130
