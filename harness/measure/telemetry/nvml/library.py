"""The binding to NVML, NVIDIA's management library: `pynvml` (distributed as nvidia-ml-py). The only file that imports it.

Every error of the library becomes a reason: a machine without a driver, or with a lost card, is a machine to be measured like any other.
"""

# ruff: noqa: ANN401 (the binding has no types)

from __future__ import annotations

from typing import Any

# NVML's own numbers, so that an older binding that lacks one of their names will do.
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
CLOCK_SM, CLOCK_MEMORY = 1, 2

WORDS = {
    INVALID_ARGUMENT: "NVML took the question for a wrong one (invalid argument)",
    NOT_SUPPORTED: "not supported",
    4: "this user is not permitted to read it",
    6: "not found",
    9: "the NVIDIA driver is not loaded",
    12: "there is no NVIDIA driver: libnvidia-ml.so.1 was not found",
    FUNCTION_NOT_FOUND: "the installed driver's library has no such function",
    GPU_IS_LOST: "GPU is lost: it no longer answers",
    16: "GPU needs a reset",
    17: "the operating system does not let this process at the card",
    18: "the driver and its library are of different versions: restart the machine, or reload the driver",
    999: "unknown error of the driver",
}
NOT_AVAILABLE = 1 << 60
"""NVML says "not available" with all bits set; no memory is as large as this."""
FOR_GOOD = (NOT_SUPPORTED, FUNCTION_NOT_FOUND)
"""Refusals that will not change while a run lasts: the question is not asked again."""
FIELD_OF_TYPE = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Which member of a field's union holds its value, by the type that NVML tells."""


class Refused(Exception):  # noqa: N818 (an answer, if not the one that was asked for)
    """NVML did not answer: its code, None for what has none, and why in words."""

    def __init__(self, code: int | None, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Library:
    """The binding, started. Whatever goes wrong in it comes out as Refused."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def ask(self, name: str, *arguments: Any) -> Any:
        """Call a function of the binding."""
        call = self.part(name)
        try:
            return call(*arguments)
        except Exception as error:  # beside NVMLError the binding raises its own mismatch error, and TypeError where it is older than the call
            told = getattr(error, "value", None)
            code = told if isinstance(told, int) else None
            known = None if code is None else WORDS.get(code)
            raise Refused(code, known or str(error) or type(error).__name__) from error

    def part(self, name: str) -> Any:
        """Return a function or a structure of the binding by name."""
        found = getattr(self._module, name, None)
        if found is None:
            raise Refused(FUNCTION_NOT_FOUND, f"the NVML binding has no {name}: update nvidia-ml-py")
        return found

    def get(self, name: str, *arguments: Any) -> Any | None:
        """Call a function whose answer is not needed; None where it gives none."""
        try:
            return self.ask(name, *arguments)
        except Refused:
            return None


def start() -> Library:
    """Load and start NVML; raises Refused with the whole sentence. Give it back by asking nvmlShutdown."""
    try:
        import pynvml  # type: ignore[import-untyped, unused-ignore]  # noqa: PLC0415 (may be missing)
    except Exception as error:  # another package of that name may raise anything
        raise Refused(None, f"the NVML binding (nvidia-ml-py) is missing: {error}") from error
    missing = [name for name in ("nvmlInit", "NVMLError", "nvmlDeviceGetCount", "nvmlDeviceGetUUID") if not hasattr(pynvml, name)]
    if missing:
        raise Refused(None, f"the module pynvml on the path is not nvidia-ml-py: it has no {missing[0]}")
    library = Library(pynvml)
    try:
        library.ask("nvmlInit")
    except Refused as refusal:
        raise Refused(refusal.code, f"NVML could not be started: {refusal.text}") from refusal
    return library


def text(value: str | bytes | None) -> str | None:
    """Return what the binding tells as text: some versions tell bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def bus_id(library: Library, question: str, *arguments: Any) -> str | None:
    """Return where on the PCI bus the device sits that a question is answered with, None where it is not, or with no text."""
    told = library.get(question, *arguments)
    try:
        return (None if told is None else text(told.busId)) or None
    except UnicodeDecodeError:  # the binding makes text of it only when it is looked at
        return None


def refusal_of(code: int) -> Refused:
    """Return the refusal that a code stands for."""
    return Refused(code, WORDS.get(code, f"NVML's error {code}"))


def field_value(field: Any) -> float | Refused:
    """Return what one field of those that nvmlDeviceGetFieldValues fills holds, or why nothing."""
    if field.nvmlReturn != 0:
        return refusal_of(field.nvmlReturn)
    if field.valueType >= len(FIELD_OF_TYPE):
        return Refused(None, f"the driver gave a value of a kind that is not known: {field.valueType}")
    return float(getattr(field.value, FIELD_OF_TYPE[field.valueType]))
