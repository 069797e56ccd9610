"""How a verdict's word looks: a symbol, a colour, a sentence. Never colour alone: every use shows the word or the symbol beside it.

The colours are dark variants of the Okabe-Ito set, apart from one another for colour-blind readers and at least 4.5:1 on white.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.model import Word


@dataclass(frozen=True)
class Look:
    """`symbol` for text, `ink` a colour for text and lines, `tint` one for backgrounds, `says` what the word means."""

    symbol: str
    ink: str
    tint: str
    says: str


LOOKS: dict[Word, Look] = {
    Word.CONFIRMED: Look("✓", "#00664f", "#dcf1ea", "the whole interval lies in the claimed band"),
    Word.EXCEEDED: Look("▲", "#00589c", "#deebf8", "the effect is larger than claimed"),
    Word.WEAKER: Look("▼", "#855600", "#fbeed2", "there is an effect in the claimed direction, but smaller than claimed"),
    Word.REFUTED: Look("✗", "#a83400", "#fce4d9", "what was claimed is not there"),
    Word.REVERSED: Look("⇄", "#7a1f5c", "#f6e0ee", "the effect goes the other way"),
    Word.INCONCLUSIVE: Look("?", "#4f5765", "#eceef1", "the interval still touches several regions"),
    Word.NOT_TESTABLE: Look("\N{EN DASH}", "#626a77", "#f3f4f6", "this machine, or this version, cannot decide it"),
    Word.READING: Look("•", "#384252", "#eef1f5", "measured for information, nothing is judged"),
    Word.FACT: Look("=", "#384252", "#eef1f5", "stated, nothing is judged"),
}

ORDER: tuple[Word, ...] = tuple(LOOKS)
JUDGED: tuple[Word, ...] = ORDER[:6]

IN_A_SENTENCE: dict[Word, str] = {
    Word.CONFIRMED: "confirmed",
    Word.EXCEEDED: "exceeded",
    Word.WEAKER: "weaker than claimed",
    Word.REFUTED: "refuted",
    Word.REVERSED: "reversed",
    Word.INCONCLUSIVE: "inconclusive",
}
