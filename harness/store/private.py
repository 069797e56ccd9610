"""Takes absolute paths and the host's name out of text before it is written: a bundle is handed on, and says nothing about whose machine it was.

Pure but for `here`, which asks this machine for the names that are to be hidden.
"""

from __future__ import annotations

import platform
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

_PART = r"[\w.+@%=-]+"
# "https://a/b", "images/s", "./a", "~/a" and "<path>/a" are no absolute paths; "file:///a/b" holds one.
_PATH = re.compile(rf"(?:(?<=file://)|(?<![\w./~<>-]))/(?:{_PART}/)*{_PART}")
_SAME_EVERYWHERE = ("proc", "sys", "dev")
_SENTENCE = re.compile(r"[\s/@:]")
_SHORTEST_HOST = 4


def cleaner(prefixes: Mapping[str, str], host: str = "") -> Callable[[str], str]:
    """Return a function from text to text without absolute paths and without `host`.

    `prefixes` maps folders to what stands for them ("" makes what lies below relative). Any other absolute path keeps its last part only:
    `/srv/pictures/cats` becomes `<path>/cats`. The host is replaced in sentences and addresses, not in single words, which are ids and names
    that someone chose. The result of a second pass is that of the first.
    """
    ordered = sorted(((prefix, word) for prefix, word in prefixes.items() if prefix.strip("/")), key=lambda pair: -len(pair[0]))

    def relative(match: re.Match[str]) -> str:
        path = match.group()
        parts = path.split("/")[1:]
        for prefix, word in ordered:
            if path == prefix or path.startswith(prefix + "/"):
                rest = path[len(prefix) :]
                return word + rest if word else rest.lstrip("/") or "."
        if parts[0] in _SAME_EVERYWHERE or len(parts) == 1:
            return path
        return f"<path>/{parts[-1]}"

    named = re.compile(rf"(?<![\w-]){re.escape(host)}(?![\w-])") if len(host) >= _SHORTEST_HOST and host != "localhost" else None

    def clean(text: str) -> str:
        if not _SENTENCE.search(text):
            return text
        text = _PATH.sub(relative, text) if "/" in text else text
        return named.sub("<host>", text) if named else text

    return clean


def here(bundle: Path) -> Callable[[str], str]:
    """Return the cleaner for what this machine writes into the folder `bundle`: paths inside the bundle become relative to it."""
    project = Path(__file__).resolve().parents[2]
    prefixes = {
        str(bundle.absolute()): "",
        str(bundle.resolve()): "",
        str(project): ".",
        sys.prefix: "<python>",
        sys.base_prefix: "<python>",
        str(Path.home()): "~",
        tempfile.gettempdir(): "<tmp>",
    }
    return cleaner(prefixes, platform.node())
