"""What the tests of the input side share: one small data set a session."""

from __future__ import annotations

import pytest

FILES = 24


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """The folder under which the suite's own set of FILES photographs lies, with its TFRecords. To be read only."""
    from benchmarks.input import own_records

    place = tmp_path_factory.mktemp("data")
    own_records(place, FILES)
    return place
