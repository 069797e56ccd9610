"""Files and folders that may not be read are named. Root may read everything, so there these tests run once more without that right."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness.errors import ConfigError

pytestmark = pytest.mark.tensorflow

pytest.importorskip("tensorflow")

from .pictures import FILE_LEVELS, make_images  # noqa: E402 - after the check for TensorFlow
from .test_bad_data import GOOD, run_through  # noqa: E402

ROOT = Path(__file__).parents[2]
RIGHTS = "-dac_override,-dac_read_search"


def reads_everything() -> bool:
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).chmod(0)
        try:
            Path(file.name).read_bytes()
        except PermissionError:
            return False
    return True


if reads_everything():

    @pytest.mark.slow
    @pytest.mark.skipif(shutil.which("setpriv") is None, reason="root may read everything, and setpriv (util-linux), which would stop it, is missing")
    def test_what_may_not_be_read_is_named_to_a_user_without_root_s_rights(tmp_path):
        tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path}/inner", __file__]
        done = subprocess.run(["setpriv", f"--bounding-set={RIGHTS}", f"--inh-caps={RIGHTS}", *tests], cwd=ROOT, capture_output=True, text=True, check=False)
        assert 0 == done.returncode, done.stdout[-2000:]
        assert f"{len(FILE_LEVELS) + 1} passed" in done.stdout

else:

    @pytest.mark.parametrize("level", FILE_LEVELS)
    def test_a_file_that_may_not_be_read_is_named(tmp_path, level):
        folder = make_images(tmp_path / "images", GOOD)
        (folder / "05.jpg").chmod(0)

        with pytest.raises(ConfigError, match=r"05\.jpg cannot be decoded \(.*; it is out of reach: Permission denied"):
            run_through(level, str(folder))

    def test_a_folder_that_may_not_be_listed_is_named(tmp_path):
        folder = make_images(tmp_path / "images", GOOD)
        folder.chmod(0)
        try:
            with pytest.raises(ConfigError, match=r"images cannot be listed: Permission denied"):
                run_through("tfdata", str(folder))
        finally:
            folder.chmod(0o755)
