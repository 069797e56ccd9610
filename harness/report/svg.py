"""An SVG as matplotlib writes it, made small: the same picture in about a third of the bytes. Knows nothing of figures, only of their XML.

Glyphs stay outlines. Their coordinates are rounded to a four-hundredth of an em, others to a hundredth of a point; ids become one
or two letters, repeated styles become classes, and everything that draws nothing goes.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from itertools import count, product
from string import ascii_lowercase
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterator

FINE = 4
"""Steps to which a hundredth of an em is divided: glyph coordinates become whole numbers of these."""

_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?")
_TOKEN = re.compile(r"[A-Za-z]|-?(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?")
_GLYPH_SCALE = re.compile(r"scale\((0\.\d+)\)")
_TEXT_SCALE = re.compile(r"scale\((\S+) -\1\)$")
_SHIFT = re.compile(r"translate\((\S+?)(?:[ ,](\S+))?\)")
_REFERENCE = re.compile(r"(?<=url\(#)[\w.-]+|(?<=^#)[\w.-]+$")
_REFERRING = ("href", "clip-path", "style")
_QUOTE = {"'": "&#39;"}


def compact(svg: bytes) -> bytes:
    """Return the same picture with fewer bytes. Raises ElementTree.ParseError for what is no XML."""
    root = ET.fromstring(svg)  # noqa: S314 - our own file, made a moment ago
    _plain_names(root)
    _fold_glyphs(root)
    for element in root.iter():
        _shorten(element)
    _rename(root)
    _flatten(root)
    _classes(root)
    return "".join(_written(root, top=True)).encode()


def _plain_names(root: ET.Element) -> None:
    """Take the namespaces off names; drop what only describes the file."""
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for name in [key for key in element.attrib if "}" in key]:
            element.set(name.rpartition("}")[2], element.attrib.pop(name))
    for child in root.findall("metadata"):
        root.remove(child)


# ---------------------------------------------------------------- glyphs


def _fold_glyphs(root: ET.Element) -> None:
    """Bring glyphs and their places to whole steps of a text's own scale. Leaves a picture alone in which any text is not built as expected."""
    glyphs = {str(p.get("id")): p for p in root.iter("path") if p.get("id") and _GLYPH_SCALE.fullmatch(p.get("transform", ""))}
    texts = [group for group in root.iter("g") if any(use.get("href", "")[1:] in glyphs for use in group.findall("use"))]
    uses = [use for group in texts for use in group.findall("use")]
    simple = all(_simple(use, glyphs) for use in uses)
    if not simple or not all(_TEXT_SCALE.search(group.get("transform", "")) for group in texts):
        return
    for glyph in glyphs.values():
        scale = _GLYPH_SCALE.fullmatch(glyph.attrib.pop("transform"))
        glyph.set("d", _steps(glyph.get("d", ""), float(scale[1]) * FINE if scale else 1.0))
    for group in texts:
        group.set("transform", _TEXT_SCALE.sub(lambda m: "scale({0} -{0})".format(_number(float(m[1]) / FINE, 5)), group.get("transform", "")))
        for use in group.findall("use"):
            if not glyphs[use.get("href", "")[1:]].get("d"):
                group.remove(use)  # a space
                continue
            shift = _SHIFT.fullmatch(use.attrib.pop("transform", ""))
            for name, value in zip("xy", shift.groups() if shift else (), strict=False):
                if value and round(float(value) * FINE):
                    use.set(name, str(round(float(value) * FINE)))


def _simple(use: ET.Element, glyphs: dict[str, ET.Element]) -> bool:
    """Whether a letter of a text is one of the glyphs, moved and nothing else."""
    moved = use.get("transform", "")
    return use.get("href", "")[1:] in glyphs and set(use.attrib) <= {"href", "transform"} and (not moved or _SHIFT.fullmatch(moved) is not None)


def _steps(path: str, scale: float) -> str:
    """Return an outline in whole numbers, relative to the point before: small numbers, and rounding errors never add up."""
    tokens = _TOKEN.findall(path)
    parts: list[str] = []
    x = y = start_x = start_y = i = 0
    last = ""
    while i < len(tokens):
        command, i = tokens[i], i + 1
        values = []
        while i < len(tokens) and not tokens[i].isalpha():
            values.append(round(float(tokens[i]) * scale))
            i += 1
        if command in "zZ":
            parts.append("z")
            x, y, last = start_x, start_y, ""
            continue
        steps = [value - (x, y)[k % 2] for k, value in enumerate(values)]
        x, y = values[-2:]
        if command == "M":
            start_x, start_y = x, y
        parts.append(("" if command == last else command.lower()) + _joined([str(step) for step in steps], glue=command == last))
        last = command if command != "M" else ""
    return "".join(parts)


def _joined(texts: list[str], *, glue: bool = False) -> str:
    """Join numbers with as few separators as SVG allows; `glue`: another number stands before them."""
    return "".join(text if text.startswith("-") or (k == 0 and not glue) else f" {text}" for k, text in enumerate(texts))


# ---------------------------------------------------------------- everything else


def _number(value: float, digits: int = 2) -> str:
    text = f"{value:.{digits}f}".rstrip("0").rstrip(".") if digits else str(round(value))
    text = text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text
    return "0" if text in {"", "-0", "-"} else text


def _shorten(element: ET.Element) -> None:
    if element.tag == "style":
        element.text = re.sub(r"\s*([{:;])\s*", r"\1", element.text or "")
    else:
        element.text = None
    element.tail = None
    for name, value in list(element.attrib.items()):
        if name == "style":
            element.set(name, re.sub(r"\s*([:;])\s*", r"\1", value).strip("; "))
        elif name == "d" and "." in value:
            element.set(name, _outline(value))
        elif name in {"x", "y", "width", "height"} and element.tag != "svg":
            element.set(name, _NUMBER.sub(lambda m: _number(float(m[0])), value))
        elif name == "transform" and "translate" in value:
            element.set(name, re.sub(r"translate\([^)]*\)", lambda m: _NUMBER.sub(lambda n: _number(float(n[0])), m[0]), value).replace(") ", ")"))
    for name in ("version", "type"):
        element.attrib.pop(name, None)


def _outline(path: str) -> str:
    parts = [token if token.isalpha() else _number(float(token)) for token in _TOKEN.findall(path)]
    return re.sub(r" ?([A-Za-z]) ?", r"\1", " ".join(parts)).replace(" -", "-")


def _rename(root: ET.Element) -> None:
    """Give ids that something refers to names of one or two letters, the most used the shortest; the others go."""
    used: Counter[str] = Counter()
    for element in root.iter():
        for name in _REFERRING:
            used.update(_REFERENCE.findall(element.get(name, "")))
    short = dict(zip((name for name, _ in used.most_common()), _names(), strict=False))
    for element in root.iter():
        known = element.attrib.pop("id", None)
        if known in short:
            element.set("id", short[known])
        for name in _REFERRING:
            if name in element.attrib:
                element.set(name, _REFERENCE.sub(lambda m: short[m[0]], element.attrib[name]))


def _names() -> Iterator[str]:
    for length in count(1):
        yield from ("".join(letters) for letters in product(ascii_lowercase, repeat=length))


def _flatten(parent: ET.Element) -> None:
    """Take groups apart that carry nothing; drop empty ones and outlines without a line that nothing refers to."""
    children = []
    for child in list(parent):
        _flatten(child)
        if child.tag in {"g", "defs"} and not len(child):
            continue
        if child.tag == "path" and not child.get("d") and not child.get("id"):
            continue
        children.extend(list(child) if child.tag == "g" and not child.attrib else [child])
    parent[:] = children


def _classes(root: ET.Element) -> None:
    styles = Counter(element.get("style") for element in root.iter() if element.get("style"))
    names = dict(zip((style for style, times in styles.most_common() if times > 1), _names(), strict=False))
    if not names:
        return
    for element in root.iter():
        style = element.get("style")
        if style in names:
            del element.attrib["style"]
            element.set("class", names[style])
    sheet = root.find("./defs/style")
    if sheet is None:
        sheet = ET.Element("style")
        root.insert(0, sheet)
    sheet.text = (sheet.text or "") + "".join(f".{name}{{{style}}}" for style, name in names.items())


def _written(element: ET.Element, *, top: bool = False) -> Iterator[str]:
    attributes = "".join(f" {name}='{escape(value, _QUOTE)}'" for name, value in element.attrib.items())
    space = " xmlns='http://www.w3.org/2000/svg'" if top else ""
    if not len(element) and not element.text:
        yield f"<{element.tag}{space}{attributes}/>"
        return
    yield f"<{element.tag}{space}{attributes}>{escape(element.text or '')}"
    for child in element:
        yield from _written(child)
    yield f"</{element.tag}>"
