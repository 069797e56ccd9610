"""The plan while it grows: cells, contrasts kept by what they measure, proofs. Equal comparisons are measured once, whoever asks for them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from harness.errors import ConfigError
from harness.model import Cell, Contrast, Proof


@dataclass
class Draft:
    """What has been planned so far."""

    cells: dict[str, Cell] = field(default_factory=dict)
    contrasts: dict[str, Contrast] = field(default_factory=dict)
    by_content: dict[str, str] = field(default_factory=dict)
    proofs: dict[str, Proof] = field(default_factory=dict)
    reached: set[str] = field(default_factory=set)  # keys of the person's choices that some case takes

    def add(self, contrast: Contrast, cells: tuple[Cell, ...]) -> str:
        """Take a contrast in and return the id under which it is measured."""
        content = (sorted(t.id for t in contrast.trials), contrast.arrangement.value, [f"{t.driver.value}{t.call}{len(t.processes)}" for t in contrast.trials], contrast.purpose.value)
        key = repr(content)
        self.cells |= {cell.id: cell for cell in cells}
        if key in self.by_content:
            known = self.contrasts[self.by_content[key]]
            self.contrasts[known.id] = replace(known, looks=max(known.looks, contrast.looks, key=lambda looks: looks[-1]))
            return known.id
        if contrast.id in self.contrasts:
            raise ConfigError(f"two comparisons of different cells are both called {contrast.id}; give the cases of that claim different ids")
        self.by_content[key] = contrast.id
        self.contrasts[contrast.id] = contrast
        return contrast.id
