"""The report as one HTML page that needs no network: text escaped by the template, figures as images that can run nothing."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from harness.report.text import clean
from harness.report.words import LOOKS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.model import Word
    from harness.report.content import Content

MARKS = {"good": "✓", "warn": "!", "bad": "✗", "plain": "i"}
_HERE = Path(__file__).parent
_WORDS = {f"{look.symbol} {word.value}": word for word, look in LOOKS.items()}


@dataclass(frozen=True)
class Picture:
    """A figure in two widths, each a `data:` address of an SVG. As an image it is parsed in isolation: no script, no request."""

    wide: str
    narrow: str


def picture(wide: bytes, narrow: bytes) -> Picture:
    """Return a picture from two SVG files."""
    return Picture(*(f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}" for svg in (wide, narrow)))


def slug(word: Word | None) -> str:
    """Return the CSS class of a verdict's word."""
    return f"w-{word.name.lower().replace('_', '-')}" if word else "w-none"


def _look(cell: str, numeric: bool) -> Markup:
    """Return the class of a table's cell as an attribute, nothing where it has none."""
    word = _WORDS.get(cell)
    names = [*(["num"] if numeric else []), *(["tone", slug(word)] if word else [])]
    return Markup(' class="{}"').format(" ".join(names)) if names else Markup("")


def _harmless(value: object) -> object:
    """Clean every text that the template prints; escaping follows. Our own markup passes."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _css() -> str:
    words = "".join(f".{slug(word)}{{--word:{look.ink};--tint:{look.tint}}}" for word, look in LOOKS.items())
    tones = "".join(f"td.{slug(word)}{{color:{look.ink}}}" for word, look in LOOKS.items())
    return (_HERE / "style.css").read_text(encoding="utf-8") + words + tones


def to_html(content: Content, pictures: Mapping[str, Picture]) -> str:
    """Return the page. `pictures` maps a section's id to its figure; sections without one show their table alone."""
    environment = Environment(loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, finalize=_harmless)
    environment.globals.update(slug=slug, look=_look, looks=LOOKS, marks=MARKS)
    css = Markup(_css())  # noqa: S704 - our own file, no text of a bundle
    return environment.get_template("page.html.j2").render(c=content, pictures=dict(pictures), css=css)
