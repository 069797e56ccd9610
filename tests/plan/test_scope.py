"""What a machine lacks is said with a reason."""

from __future__ import annotations

import pytest

from harness.plan.scope import missing, on_exact_hardware, shares_card
from harness.plan.specs import Needs
from tests.plan.builders import make_gpu, make_machine


@pytest.mark.parametrize(
    ("needs", "code"),
    [
        (Needs(device="gpu"), "needs_gpu"),
        (Needs(compute_capability=7.0), "needs_compute_capability"),
        (Needs(gpus=8), "needs_gpus"),
        (Needs(cores=4), "needs_cores"),
        (Needs(card_memory_gib=8), "needs_card_memory"),
        (Needs(package="no_such_package_here"), "needs_package"),
        (Needs(platform="amiga"), "needs_platform"),
        (Needs(ability="fuse"), "needs_ability"),
    ],
)
def test_each_unmet_need_has_its_code(needs: Needs, code: str) -> None:
    reason = missing(needs, make_machine(), "cpu")
    assert reason is not None
    assert code == reason.code


def test_the_reason_for_no_gpu_is_the_machines_own() -> None:
    reason = missing(Needs(device="gpu"), make_machine(gpu_reason="driver not loaded"), "cpu")
    assert reason is not None
    assert "needs a GPU: driver not loaded" == reason.text


def test_a_met_need_has_no_reason() -> None:
    machine = make_machine(gpus=(make_gpu(),))
    assert missing(Needs(device="gpu", compute_capability=7.0, gpus=1, cores=2), machine, "gpu") is None


def test_an_old_card_is_wanted_and_a_new_one_is_not_it() -> None:
    reason = missing(Needs(compute_capability_below=7.0), make_machine(gpus=(make_gpu(),)), "gpu")
    assert reason is not None
    assert "needs a GPU of compute capability below 7.0: this one has 8.0" == reason.text


@pytest.mark.parametrize(("memory_bytes", "said"), [(2**33, "this one has 8.0"), (None, "how much this one has is not known")])
def test_a_card_with_too_little_memory_says_how_much_it_has(memory_bytes: int | None, said: str) -> None:
    reason = missing(Needs(card_memory_gib=20), make_machine(gpus=(make_gpu(memory_bytes=memory_bytes),)), "gpu")
    assert reason is not None
    assert f"needs a GPU with 20 GiB of memory: {said}" == reason.text


def test_a_card_with_enough_memory_is_no_hindrance() -> None:
    assert missing(Needs(card_memory_gib=20), make_machine(gpus=(make_gpu(memory_bytes=20 * 2**30),)), "gpu") is None


@pytest.mark.parametrize(("mode", "shared"), [("default", True), (None, True), ("exclusive_process", False), ("exclusive_thread", False)])
def test_a_card_in_exclusive_mode_is_not_shared(mode: str | None, shared: bool) -> None:
    assert shared is shares_card(make_machine(gpus=(make_gpu(compute_mode=mode),)))


@pytest.mark.parametrize(
    ("exact", "expected"),
    [(None, True), ({"gpu": "a100"}, True), ({"gpu": "A100 80GB"}, True), ({"gpu": "V100"}, False), ({"gpu": "A100", "gpus": 8}, False), ({"gpu": "A100", "cpu": "epyc"}, False)],
)
def test_exact_hardware_is_matched_by_name_and_number(exact: dict[str, object] | None, expected: bool) -> None:
    assert expected is on_exact_hardware(exact, make_machine(gpus=(make_gpu(),)), "gpu")


def test_what_a_user_may_not_do_is_named_in_words() -> None:
    reason = missing(Needs(ability="memory_cgroup"), make_machine(), "cpu")
    assert reason is not None
    assert "needs the permission to make a control group with a memory limit" == reason.text


def test_what_a_user_may_do_is_no_hindrance() -> None:
    assert missing(Needs(ability="fuse"), make_machine(abilities=("fuse",)), "cpu") is None
