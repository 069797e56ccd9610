"""What the input side is made of and how fast each of it is: the data set, the decoder, the parts of a pipeline, a session's step.

A part of `python -m benchmarks.figures --input`. Functions whose names end in `turns` measure, and are called in a process of their own; those that return
lines turn what was measured into what is printed.
"""

from __future__ import annotations

import io
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import libjpeg_turbo
from benchmarks.turns import REPEATS, ROOT, Middle, in_a_process, in_turns, middle, ratio, timed
from harness.errors import ConfigError

FILES = 2_000
CORES = 2
STEPS = {"model": "resnet50", "image": 96, "batch": 16}
ACCURATE = {"channels": 3, "dct_method": "INTEGER_ACCURATE", "fancy_upscaling": True}
"""How `benchmarks.input.decoding.decode` has pictures decoded, as libjpeg-turbo by itself does. tf.io.decode_jpeg's own default is the fast transform."""
FAST = {"channels": 3, "dct_method": "INTEGER_FAST", "fancy_upscaling": False}
"""How `benchmarks.input.decoding.decode_fast` has them decoded, and so tfdata_tuned."""
PARTS = {
    "read": "reading a photograph from the page cache, one core",
    "decode": "decoding it as tfdata_tuned does, one core",
    "resize": "resizing it to {image} px, one core",
    "normalise": "normalising it in a batch of {batch}, one core",
}


@dataclass(frozen=True)
class Scale:
    """How much is measured: in each of `repeats` turns `images` pictures a core, out of the suite's own set of `files` photographs under `data_dir`;
    where they are resized, to `image` px in batches of `batch`."""

    data_dir: str | Path = ROOT / "data"
    files: int = 128
    images: int = 512
    image: int = 224
    batch: int = 16
    repeats: int = REPEATS


USUAL = Scale()


class Line(NamedTuple):
    """One line of what is printed: what was measured, its value, and what is asked of it or how it came about."""

    what: str
    value: str
    note: str


def lines() -> Iterator[Line]:
    """Measure, and yield each line as soon as it is known."""
    yield making_line(*make_seconds())
    yield from decoding_lines(in_a_process(__name__, "it.decode_turns()"))
    yield from parts_lines(in_a_process(__name__, "it.parts_turns()"))
    yield step_line(in_a_process(__name__, "it.step_turns()"))


# ---------------------------------------------------------------- the data set


def make_seconds(files: int = FILES) -> tuple[float, int]:
    """Return the seconds that the command takes to make `files` photographs and their TFRecords, TensorFlow's import included, and on how many cores."""
    with tempfile.TemporaryDirectory() as place, on_cores(CORES) as used:
        command = [sys.executable, "-m", "benchmarks.input", "make", place, "--files", str(files)]
        return timed(lambda: subprocess.run(command, cwd=ROOT, check=True, capture_output=True))(), used


@contextmanager
def on_cores(number: int) -> Iterator[int]:
    """Keep this thread, and the processes that it starts, to `number` cores, or to those that it may use if they are fewer; yields how many."""
    allowed = os.sched_getaffinity(0)
    kept = sorted(allowed)[:number]
    os.sched_setaffinity(0, kept)
    try:
        yield len(kept)
    finally:
        os.sched_setaffinity(0, allowed)


def making_line(seconds: float, cores: int) -> Line:
    """Return what making the set took."""
    note = "at most 60 s; once" if cores == CORES else f"at most 60 s on {CORES} cores; once"
    return Line(f"{FILES} photographs and their TFRecords, {_cores(cores)}", f"{seconds:.1f} s", note)


# ---------------------------------------------------------------- the decoder


def decode_turns(scale: Scale = USUAL, find: Callable[[], libjpeg_turbo.Library] = libjpeg_turbo.find) -> dict[str, Any]:
    """Return the `seconds` of each turn that decoding `images` pictures took on all usable `cores`: by tf.data (`tfdata`), by libjpeg-turbo itself
    (`library`, by the name that it has; None and the reason in `missing` where it is not here), and by Pillow.

    All have the encoded bytes in memory, and decode them to RGB with the accurate transform and fancy upsampling.
    """
    import tensorflow as tf
    from PIL import Image, features

    from benchmarks.input.photographs import own
    from benchmarks.input.samples import cores

    encoded = [Path(photograph.path).read_bytes() for photograph in own(Path(scale.data_dir), scale.files)]
    times = max(1, round(scale.images * cores() / len(encoded)))

    def height(one: Any) -> Any:
        return tf.shape(tf.io.decode_jpeg(one, **ACCURATE))[0]

    in_memory = tf.data.Dataset.from_tensor_slices(tf.constant(encoded)).repeat(times)
    decoded = in_memory.map(height, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    works: dict[str, Callable[[], object]] = {"tfdata": lambda: decoded.reduce(0, tf.maximum).numpy()}
    library, missing = usable(find, encoded[:2])
    if library is not None:
        works["library"] = partial(_by_threads, library.decoder, encoded * times)
    works["pillow"] = partial(_by_threads, lambda: nullcontext(lambda one: Image.open(io.BytesIO(one)).load()), encoded * times)
    return {
        "seconds": dict(zip(works, in_turns(*map(timed, works.values()), repeats=scale.repeats))),
        "images": len(encoded) * times,
        "cores": cores(),
        "library": None if library is None else library.name,
        "missing": missing,
        "pillow": features.version("libjpeg_turbo"),
    }


def usable(find: Callable[[], libjpeg_turbo.Library], encoded: Sequence[bytes]) -> tuple[libjpeg_turbo.Library | None, str]:
    """Return the library that `find` finds, or None and why there is no yardstick: it is not here, or it does not compute what TensorFlow computes."""
    import tensorflow as tf

    def differs(pixels: Any, one: bytes) -> int:
        return int(abs(pixels.astype("int16") - tf.io.decode_jpeg(one, **ACCURATE).numpy()).max())

    try:
        library = find()
        with library.decoder() as decode:
            differ = max(differs(decode(one), one) for one in encoded)
    except ConfigError as error:
        return None, str(error)
    if differ:
        return None, f"{library.name} decodes to other pixels than TensorFlow (by up to {differ} of 255): that is not the same computation"
    return library, ""


def _by_threads(decoder: Callable[[], AbstractContextManager[Callable[[bytes], object]]], encoded: Sequence[bytes]) -> None:
    """Decode all of `encoded` in as many threads as there are usable cores. They share one iterator: a task for each picture would cost Python's time."""
    from benchmarks.input.samples import cores
    from benchmarks.input.storing import in_threads

    waiting = iter(encoded)

    def work(_: int) -> None:
        with decoder() as decode:
            for one in waiting:
                decode(one)

    in_threads(work, range(cores()))


def decoding_lines(told: Mapping[str, Any]) -> Iterator[Line]:
    """Return tf.data's rate over the library's, and all rates."""
    seconds, images, threads = told["seconds"], told["images"], told["cores"]
    over = "decoding by tf.data over libjpeg-turbo, called directly"
    if told["library"] is None:
        yield Line(over, "n/a", told["missing"])
    else:
        rates = ratio(seconds["library"], seconds["tfdata"])
        yield Line(over, f"{rates.median:.2f}", f"at least 0.90; {_turns(rates, '.2f')}")
    note = f"to RGB, accurate transform, fancy upsampling; median of {len(seconds['tfdata'])} turns"
    yield Line(f"  tf.data, {_cores(threads)}", _rate(seconds["tfdata"], images), note)
    if told["library"] is not None:
        yield Line(f"  {told['library']}, {_cores(threads)}", _rate(seconds["library"], images), "to the same pixels")
    pillow = f"Pillow with libjpeg-turbo {told['pillow']}" if told["pillow"] else "Pillow without libjpeg-turbo"
    yield Line(f"  {pillow}, {_cores(threads)}", _rate(seconds["pillow"], images), "for comparison; Pillow's own work is in it")


# ---------------------------------------------------------------- a pipeline's parts


def parts_turns(scale: Scale = USUAL) -> dict[str, Any]:
    """Return what `time_parts` returns with one thread an op, as a part's cost on one core asks for. Needs a TensorFlow that has done nothing yet."""
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    return time_parts(scale)


def time_parts(scale: Scale) -> dict[str, Any]:
    """Return seconds an image of each turn: of the `parts` of PARTS, each by itself and one call after the other, its input lying ready in memory; and
    of the `pipeline` tfdata_tuned, which has a pool of threads of its own, on all usable `cores` once it runs evenly and before an epoch ends.

    A call does a whole batch, so that what a call costs counts little.
    """
    import tensorflow as tf

    from benchmarks.input.decoding import normalise, resize
    from benchmarks.input.photographs import own
    from benchmarks.input.samples import Asked, cores
    from benchmarks.input.tfdata import tfdata_tuned

    found = own(Path(scale.data_dir), scale.files)
    paths = [tf.constant(photograph.path) for photograph in found]
    read, decode, smaller = (_of_each(part) for part in (tf.io.read_file, partial(tf.io.decode_jpeg, **FAST), partial(resize, image=scale.image)))
    named = [paths[at : at + scale.batch] for at in range(0, len(paths) - scale.batch + 1, scale.batch)]
    encoded = [read(group) for group in named]
    pixels = [decode(group) for group in encoded]
    stacked = [tf.stack(smaller(group)) for group in pixels]
    calls = {
        "read": (read, named),
        "decode": (decode, encoded),
        "resize": (smaller, pixels),
        "normalise": (tf.function(normalise, autograph=False), stacked),
    }
    passes = max(1, round(scale.images / (len(named) * scale.batch)))
    steps = math.ceil(scale.images * cores() / scale.batch)
    epoch = found * (2 + 2 * steps * scale.batch // len(found))

    def part(call: Callable[[Any], Any], groups: Sequence[Any]) -> float:
        return timed(lambda: [_drop(call(group) for group in groups) for _ in range(passes)])() / (passes * len(groups) * scale.batch)

    def pipeline() -> float:
        pulled = tfdata_tuned(epoch, Asked(batch=scale.batch, image=scale.image))
        _drop(batch for _, batch in zip(range(steps // 2), pulled))
        return timed(lambda: _drop(batch for _, batch in zip(range(steps), pulled)))() / (steps * scale.batch)

    *parts, whole = in_turns(*(partial(part, *call) for call in calls.values()), pipeline, repeats=scale.repeats)
    return {"parts": dict(zip(calls, parts)), "pipeline": whole, "cores": cores(), "image": scale.image, "batch": scale.batch}


def _of_each(part: Callable[[Any], Any]) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a graph that does `part` for each of a batch's items."""
    import tensorflow as tf

    return tf.function(lambda items: [part(item) for item in items], autograph=False)


def _drop(items: Iterator[Any]) -> None:
    """Exhaust `items`, keeping none of them."""
    for _ in items:
        pass


def parts_lines(told: Mapping[str, Any]) -> Iterator[Line]:
    """Return what each part costs, their sum, and how much of what it allows the whole pipeline reaches."""
    for name, what in PARTS.items():
        yield _cost(what.format(**told), told["parts"][name])
    sums = [sum(turn) for turn in zip(*told["parts"].values(), strict=True)]
    yield _cost("  their sum", sums)
    cores = told["cores"]
    yield Line(f"tfdata_tuned, which does all of it, {_cores(cores)}", _rate(told["pipeline"], 1), f"median of {len(told['pipeline'])} turns")
    share = ratio(sums, [cores * seconds for seconds in told["pipeline"]])
    note = f"1 loses nothing; parts are timed while other cores rest; {_turns(share, '.2f')}"
    yield Line("  its rate x the sum / cores", f"{share.median:.2f}", note)


def _cost(what: str, seconds: Sequence[float]) -> Line:
    cost = middle([1e3 * each for each in seconds])
    return Line(what, f"{cost.median:.3f} ms", _turns(cost, ".3f"))


# ---------------------------------------------------------------- a step


def step_turns(sizes: Mapping[str, Any] = STEPS, repeats: int = REPEATS) -> dict[str, list[float]]:
    """Return the seconds of five training steps on the same synthetic batch: by tf.function (`function`), and in a session that is fed (`session`)."""
    import tensorflow as tf

    from benchmarks.training import build

    arms = {"function": build(**sizes), "session": build(**sizes, input="feed_dict", feed_synthetic=True)}

    def five(arm: Any) -> Callable[[], float]:
        return timed(lambda: (arm.run(5), tf.test.experimental.sync_devices()))

    return dict(zip(arms, in_turns(*map(five, arms.values()), repeats=repeats)))


def step_line(told: Mapping[str, Sequence[float]]) -> Line:
    """Return the session's step over the tf.function's."""
    steps = ratio(told["session"], told["function"])
    return Line("a session's step over tf.function's, synthetic data", f"{steps.median:.3f}", f"0.95 to 1.05; {_turns(steps, '.3f')}")


# ---------------------------------------------------------------- words


def _turns(found: Middle, form: str) -> str:
    return f"median of {found.turns} turns, {found.low:{form}} to {found.high:{form}}"


def _rate(seconds: Sequence[float], images: int) -> str:
    return f"{images / middle(seconds).median:.0f} images/s"


def _cores(number: int) -> str:
    return "one core" if number == 1 else f"{number} cores"
