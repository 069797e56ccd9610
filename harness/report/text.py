"""Text from bundles made harmless before any printer sees it: what cannot be seen must not act. Escaping for a format comes after this."""

from __future__ import annotations

import unicodedata

_ACTING = {"Cc", "Cf", "Cs", "Co"}  # control, format (text direction among them), lone surrogates, private use
_KEPT = {"\n", "\t", "\N{SOFT HYPHEN}", "\N{ZERO WIDTH JOINER}"}


def clean(text: str) -> str:
    """Return `text` with control characters, direction overrides and lone surrogates replaced by U+FFFD; line ends and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in _ACTING and c not in _KEPT else c for c in text)


def one_line(text: str) -> str:
    """Return the cleaned text with every run of white space as one space."""
    return " ".join(clean(text).split())
