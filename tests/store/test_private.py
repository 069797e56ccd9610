"""What is taken out of text before it is written, and what has to stay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.store.private import cleaner

clean = cleaner({"/home/ada": "~", "/home/ada/suite": ".", "/home/ada/suite/results/run": "", "/": "/"}, host="ada-laptop")


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("~/notes.txt", "/home/ada/notes.txt"),
        ("./harness/run.py", "/home/ada/suite/harness/run.py"),
        ("logs/a.log", "/home/ada/suite/results/run/logs/a.log"),
        (".", "/home/ada/suite/results/run"),
        ("<path>/cats", "/srv/pictures/cats"),
        ("<path>/x", "/home/adam/x"),
        ("PATH=<path>/bin:~/bin", "PATH=/opt/tools/bin:/home/ada/bin"),
        ('File "~/net.py", line 3', 'File "/home/ada/net.py", line 3'),
        ("file://~/net.py", "file:///home/ada/net.py"),
        ("ada@<host>: refused", "ada@ada-laptop: refused"),
        ("connect <host>:2222", "connect ada-laptop:2222"),
    ],
)
def test_a_path_or_host_is_replaced(expected, text):
    assert expected == clean(text)


@pytest.mark.parametrize(
    "text",
    [
        "https://example.org/a/b",
        "images/s",
        "1 /s of 2",
        "./a/b and ~/a/b and <path>/b",
        "/proc/self/status",
        "a/b/c",
        "ada-laptop",
        "on ada-laptop-2 it ran",
        "</p></td>",
        "read and/or write",
    ],
)
def test_what_is_no_absolute_path_stays(text):
    assert text == clean(text)


@given(st.text(alphabet="/.~<>: ahomed-", max_size=40))
def test_cleaning_twice_changes_nothing_more(text):
    assert clean(text) == clean(clean(text))


def test_a_short_host_name_is_no_reason_to_spoil_text():
    assert "on a gpu it ran" == cleaner({}, host="gpu")("on a gpu it ran")
