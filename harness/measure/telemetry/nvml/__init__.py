"""The only package that speaks NVML, NVIDIA's management library.

Cards are known by UUID, which means the same to NVML, to CUDA and inside a container; an index does not. `library` is the binding, its errors turned
into reasons; `cards` tells which cards there are, `topology` how they hang together, `setup` how each is set up, `reader` what they do over time.
"""

from harness.measure.telemetry.nvml.cards import Card, Inventory, devices, inventory, visible
from harness.measure.telemetry.nvml.library import Refused
from harness.measure.telemetry.nvml.reader import Nvml, NvmlReader, nested, throttle_words
from harness.measure.telemetry.nvml.setup import CardSetup, Setup, read_setup

__all__ = [
    "Card",
    "CardSetup",
    "Inventory",
    "Nvml",
    "NvmlReader",
    "Refused",
    "Setup",
    "devices",
    "inventory",
    "nested",
    "read_setup",
    "throttle_words",
    "visible",
]
