"""Checks of TensorFlow and of what it needs from NVIDIA: pure functions from facts to a finding, None where a check does not apply."""

from __future__ import annotations

import re

from harness.doctor.facts import Card, Facts, Framework, MachineCode
from harness.doctor.findings import Finding, error, info, ok, unknown, warning
from harness.doctor.versions import minimum_driver, minor, parts, row_of, suffices, tables

INSTALL = "run make setup CUDA=1, or install tensorflow[and-cuda] at the versions of constraints.txt"


def answers(facts: Facts) -> Finding:
    """TensorFlow can be imported, and answers."""
    tf = facts.framework
    if tf.reason is None:
        return ok(f"TensorFlow {tf.version} answers", version=tf.version)
    if tf.version is not None:
        why = "a worker that looks for its device will end the same way"
        return error("no_answer", f"TensorFlow {tf.version} did not answer whole: {tf.reason}", why, "mend the driver or the installation")
    if tf.python is None and facts.host.lock_holder is not None:
        return unknown("TensorFlow", tf.reason)
    advice = (
        "run make setup; on a processor without AVX no wheel of TensorFlow runs"
        if "SIGILL" in tf.reason
        else "run make setup, or mend the installation"
    )
    return error("no_tensorflow", f"TensorFlow cannot be used: {tf.reason}", "every claim is about it", advice)


def python_version(facts: Facts) -> Finding | None:
    """The interpreter is one that this TensorFlow was published for."""
    tf = facts.framework
    row = row_of(tf.version)
    if tf.version is None or tf.python is None:
        return None
    if row is None:
        return info(
            "not_in_table", f"Python {tf.python}; TensorFlow {tf.version} is not in the table of tested configurations", advice=tables().tested_source
        )
    first, last = row.python
    if parts(first) <= parts(tf.python)[:2] <= parts(last):
        return ok(f"Python {tf.python}; TensorFlow {minor(tf.version)} is published for {first} to {last}")
    why = "there is no wheel for it: this is a build of one's own, and figures of others do not compare"
    found = f"Python {tf.python} is outside {first} to {last}, for which TensorFlow {minor(tf.version)} is published"
    return warning("python_outside", found, why, f"use Python {first} to {last}")


def gpu_seen(facts: Facts) -> Finding | None:
    """TensorFlow sees the cards that NVML sees; if not, why."""
    tf, cards = facts.framework, len(facts.cards.cards)
    if tf.gpus is None:
        return None
    if tf.gpus >= max(1, cards):
        return ok(f"TensorFlow sees {tf.gpus} of {cards or tf.gpus} cards", seen=tf.gpus)
    why = "claims that need a GPU will be NOT TESTABLE"
    if tf.cuda_build is False:
        return error("no_cuda_build", f"this build of TensorFlow {tf.version} has no CUDA support, and there is a card", why, INSTALL)
    said = "; ".join(tf.said) or "TensorFlow gives no reason"
    if tf.gpus > 0:
        return warning(
            "some_unseen", f"TensorFlow sees {tf.gpus} of {cards} cards: {said}", "what is not seen is not measured", "see TensorFlow's own lines"
        )
    wheels = "" if _wheel(tf, "cuda-runtime", None) else ", and no CUDA wheel is installed beside it"
    return error("unseen", f"TensorFlow sees none of {cards} cards{wheels}: {said}", why, INSTALL if wheels else "mend what TensorFlow names", seen=0)


def driver(facts: Facts) -> Finding | None:
    """The driver is new enough for the CUDA that TensorFlow was built with."""
    tf, cards = facts.framework, facts.cards
    if not tf.cuda:
        return None
    if cards.driver is None:
        return unknown("the driver's version", "NVML did not tell it")
    needed, enough = minimum_driver(tf.cuda), suffices(cards.driver, tf.cuda)
    if needed is None or enough is None:
        return unknown(f"which driver CUDA {tf.cuda} needs", f"the table does not hold it; the driver is {cards.driver}")
    if enough:
        return ok(f"driver {cards.driver}; CUDA {parts(tf.cuda)[0]}.x needs {needed}", driver=cards.driver, needed=needed)
    found = f"driver {cards.driver} is older than {needed}, which CUDA {parts(tf.cuda)[0]}.x needs"
    if tf.gpus:
        why = "TensorFlow sees the card all the same, as with NVIDIA's forward-compatibility package"
        return warning("driver_old", found, why, f"install driver {needed} or later ({tables().driver_source})", driver=cards.driver, needed=needed)
    return error(
        "driver_old", found, "CUDA does not start", f"install driver {needed} or later ({tables().driver_source})", driver=cards.driver, needed=needed
    )


def cuda_runtime(facts: Facts) -> Finding | None:
    """The CUDA that is installed is of the build's major version, and not older."""
    tf = facts.framework
    if not tf.cuda:
        return None
    built = parts(tf.cuda)
    installed = _wheel(tf, "cuda-runtime", built[0])
    if installed is None:
        return _not_installed(tf, "CUDA runtime")
    numbers = {"installed": installed, "built": tf.cuda}
    if parts(installed)[0] != built[0]:
        found = f"CUDA {installed} is installed, TensorFlow was built with {tf.cuda}"
        return error("cuda_major", found, "libraries of another major version have other names and are not found", INSTALL, **numbers)
    if parts(installed)[:2] < built[:2]:
        found = f"CUDA {installed} is installed, older than the {tf.cuda} that TensorFlow was built with"
        return warning("cuda_older", found, "nobody has tested it, and newer functions may be missing", INSTALL, **numbers)
    return ok(f"CUDA {installed} installed, TensorFlow was built with {tf.cuda}", **numbers)


def cudnn(facts: Facts) -> Finding | None:
    """The cuDNN that is installed is of the needed major version, and not older than the tested one."""
    tf = facts.framework
    if not tf.cudnn:
        return None
    row = row_of(tf.version)
    needed = row.cudnn if row is not None and parts(row.cudnn)[0] == parts(tf.cudnn)[0] and len(parts(tf.cudnn)) < 2 else tf.cudnn
    installed = _wheel(tf, "cudnn", parts(needed)[0])
    if installed is None:
        return _not_installed(tf, "cuDNN")
    wanted = parts(needed)
    numbers = {"installed": installed, "needed": needed}
    if parts(installed)[0] != wanted[0] or parts(installed)[: len(wanted)] < wanted:
        why = "TensorFlow refuses a cuDNN of another major version, or one older than it was built with"
        return error("cudnn_wrong", f"cuDNN {installed} is installed, {needed} or later of its major version is needed", why, INSTALL, **numbers)
    return ok(f"cuDNN {installed} installed, {needed} or later is needed", **numbers)


def configuration(facts: Facts) -> Finding | None:
    """TensorFlow was built with the CUDA and cuDNN of its tested configuration."""
    tf = facts.framework
    row = row_of(tf.version)
    if not tf.cuda or not tf.version:
        return None
    if row is None:
        return info("not_in_table", f"TensorFlow {tf.version} is not in the table of tested configurations", advice=tables().tested_source)
    same_cudnn = tf.cudnn is None or parts(row.cudnn)[: len(parts(tf.cudnn))] == parts(tf.cudnn)[: len(parts(row.cudnn))]
    if parts(tf.cuda)[:2] == parts(row.cuda) and same_cudnn:
        return ok(f"built with CUDA {tf.cuda} and cuDNN {tf.cudnn or '?'}, as tested (CUDA {row.cuda}, cuDNN {row.cudnn})")
    found = f"built with CUDA {tf.cuda} and cuDNN {tf.cudnn or '?'}; the tested configuration of TensorFlow {minor(tf.version)} is CUDA {row.cuda}, cuDNN {row.cudnn}"
    return info("own_build", found, "a build of one's own: figures of others do not compare")


def architecture(facts: Facts, card: Card) -> Finding | None:
    """The build has machine code for the card, or at least PTX that can be compiled for it."""
    tf = facts.framework
    if tf.cuda_build is False or tf.version is None:
        return None
    if card.compute_capability is None:
        return unknown("the card's compute capability", card.why("compute_capability"))
    if tf.code is None:
        return unknown("for which GPUs this build has code", "neither its libraries nor the build itself tell")
    return _runs_on(round(card.compute_capability * 10), tf.code, tf.cuda, facts.cards.driver_cuda)


def _runs_on(mine: int, code: MachineCode, built: str | None, driver_cuda: str | None) -> Finding:
    """Say how code for sm_`mine` is had. `built` is the build's CUDA, `driver_cuda` the latest that the driver knows."""
    has = f"the build has machine code for {_names('sm', code.native)} and PTX for {_names('compute', code.ptx)} ({code.source})"
    if any(sm // 10 == mine // 10 and sm <= mine for sm in code.native):  # machine code runs within a major version, on what came later
        return ok(f"sm_{mine} runs natively: {has}")
    if not any(ptx <= mine for ptx in code.ptx):
        advice = "install a TensorFlow built for this card"
        return error("no_code", f"nothing in this build runs on sm_{mine}: {has}", "kernels fail when they are first called", advice)
    if built and driver_cuda and parts(driver_cuda) < parts(built)[:2]:
        found = f"sm_{mine} must be compiled from PTX of CUDA {built}, and the driver knows CUDA {driver_cuda} only: {has}"
        return error("ptx_too_new", found, "a driver compiles no PTX newer than itself", f"install the driver of CUDA {minor(built)} or a later one")
    why = "the first start takes many minutes while the driver compiles, and XLA is reported to abort on such cards"
    advice = "expect a slow first start; a TensorFlow built for this card is better"
    return warning("ptx_only", f"sm_{mine} must be compiled from PTX: {has}", why, advice)


def _names(kind: str, numbers: tuple[int, ...]) -> str:
    return ", ".join(f"{kind}_{number}" for number in numbers) or "none"


def _wheel(tf: Framework, part: str, major: int | None) -> str | None:
    """Return the installed version of NVIDIA's package for a part: of `major` if there is one, else any."""
    found = [version for name, version in tf.wheels.items() if re.fullmatch(rf"nvidia-{part}(-cu\d+)?", name) and parts(version)]
    fitting = [version for version in found if parts(version)[0] == major]
    return max(fitting or found, key=parts, default=None)


def _not_installed(tf: Framework, what: str) -> Finding:
    if tf.gpus:
        return info("from_system", f"the {what} is none of NVIDIA's packages: TensorFlow finds one of the system's", "its version is not known")
    return unknown(f"the {what}'s version", "none of NVIDIA's packages for it is installed")
