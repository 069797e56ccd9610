"""What a run is measured on beside the machine, read when it begins and again when it is resumed: images from two sets, or saves to two disks, make two
runs. Nothing of it names a path.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from harness.config.images import Data, read_images
from harness.errors import ConfigError
from harness.measure.volume import read_volume
from harness.model import Driver, Ground, Images, Manifest, Plan, Volume

FRESH = "or start a new run"


def read_ground(data: Data, saves: Path) -> Ground:
    """Return whose images there are, and what they and the folder `saves` lie on. Raises ConfigError for a set that cannot be listed."""
    return Ground(read_images(data), read_volume(data.folder), read_volume(saves))


def on_bad_of(manifest: Manifest) -> str:
    """Return what the run does with files that cannot be decoded: fail, as all did before there was a choice, or skip."""
    data = manifest.config.get("data")
    return "skip" if isinstance(data, dict) and data.get("on_bad") == "skip" else "fail"


def refuse_other_ground(run: str, began: Ground, now: Ground, typed: Collection[str], *, saves: bool) -> None:
    """Raise ConfigError, naming both, where a run would go on with other images, or on another storage, than it began with.

    `typed`: the keys that were given with the resume; `saves`: anything of the run writes where jobs save to.
    """
    said = f"resume={run}"
    if began.images != now.images:
        raise ConfigError(f"{said}: was measured on {_whose(began.images)}, and would go on with {_whose(now.images)}; {_which(began, typed)}")
    if began.data != now.data:
        where = f"its images lay on {told(began.data)}, and would now lie on {told(now.data)}"
        raise ConfigError(f"{said}: {where}; give data.dir= with the folder that it began with, {FRESH}")
    if saves and began.saves != now.saves:
        where = f"its jobs saved to {told(began.saves)}, and would now save to {told(now.saves)}"
        raise ConfigError(f"{said}: {where}; give checkpoint.dir= as when it began, {FRESH}")


def writes_files(plan: Plan) -> bool:
    """Whether anything of the plan writes where jobs save to: jobs do, and single calls may."""
    trials = [trial for contrast in plan.contrasts for trial in contrast.trials]
    return any(trial.driver is not Driver.BLOCKS and (trial.driver is not Driver.ONCE or trial.call == "outcome") for trial in trials)


def told(volume: Volume) -> str:
    """Return a volume in words."""
    return ", ".join(word for word in (volume.file_system, volume.drive) if word) or "a storage that the kernel does not name"


def _whose(images: Images | None) -> str:
    if images is None:
        return "the suite's own photographs"
    return f"a set of {images.files} file{'s' * (images.files != 1)} and {images.total_bytes} bytes ({images.digest})"


def _which(began: Ground, typed: Collection[str]) -> str:
    if began.images is None:
        return f"leave data.dir= out, {FRESH}" if "data.dir" in typed else f"take the images out of the suite's own folder, {FRESH}"
    return f"give {'data.dir= with ' if 'data.dir' not in typed else ''}the folder that it began with, unchanged, {FRESH}"
