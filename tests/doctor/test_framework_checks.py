"""What the checks say of TensorFlow and its CUDA, at the values where it changes."""

from __future__ import annotations

import pytest

from harness.doctor import check_framework as check
from harness.doctor.facts import MachineCode
from harness.doctor.findings import Level
from tests.doctor.builders import make_card, make_cards, make_facts, make_framework, make_host

OK, INFO, WARNING, ERROR = Level.OK, Level.INFO, Level.WARNING, Level.ERROR


def judged(finding):
    return None if finding is None else (finding.code, finding.level)


def with_framework(**changes):
    return make_facts(framework=make_framework(**changes))


def test_a_machine_on_which_all_is_well_has_nothing_to_mend():
    facts = make_facts()
    checks = (check.answers, check.python_version, check.gpu_seen, check.driver, check.cuda_runtime, check.cudnn, check.configuration)
    assert {("ok", OK)} == {judged(find(facts)) for find in checks}
    assert ("ok", OK) == judged(check.architecture(facts, facts.cards.cards[0]))


def test_a_tensorflow_that_cannot_be_imported_is_an_error_with_its_reason():
    finding = check.answers(with_framework(version=None, gpus=None, reason="ModuleNotFoundError: No module named 'tensorflow'"))
    assert (("no_tensorflow", ERROR), True) == (judged(finding), "No module named" in finding.found)


def test_an_illegal_instruction_points_to_the_processor():
    finding = check.answers(with_framework(version=None, gpus=None, reason="importing TensorFlow was ended by SIGILL"))
    assert "AVX" in finding.advice


def test_a_tensorflow_that_hangs_while_it_looks_for_gpus_is_an_error_that_names_it():
    finding = check.answers(with_framework(gpus=None, reason="looking for GPUs took longer than 120 s and was given up"))
    assert (("no_answer", ERROR), True) == (judged(finding), "2.21.0" in finding.found)


def test_a_tensorflow_that_was_not_asked_because_another_run_measures_is_unknown():
    facts = make_facts(host=make_host(lock_holder="run-1"), framework=make_framework(python=None, version=None, gpus=None, reason="not asked"))
    assert ("unknown", INFO) == judged(check.answers(facts))


@pytest.mark.parametrize(
    ("expected", "python", "version"),
    [
        (("ok", OK), "3.10.0", "2.21.0"),
        (("ok", OK), "3.13.1", "2.21.0"),
        (("python_outside", WARNING), "3.9.18", "2.21.0"),
        (("python_outside", WARNING), "3.14.0", "2.21.0"),
        (("ok", OK), "3.8.10", "2.12.0"),
        (("not_in_table", INFO), "3.11.0", "2.99.0"),
        (None, None, "2.21.0"),
        (None, "3.11.0", None),
    ],
)
def test_python_is_held_against_the_versions_that_this_tensorflow_is_published_for(expected, python, version):
    assert expected == judged(check.python_version(with_framework(python=python, version=version)))


@pytest.mark.parametrize(
    ("expected", "gpus", "cards"),
    [(("ok", OK), 2, 2), (("some_unseen", WARNING), 1, 2), (("unseen", ERROR), 0, 2), (None, None, 2), (("ok", OK), 1, 0)],
)
def test_tensorflow_is_to_see_all_the_cards(expected, gpus, cards):
    told = make_cards(*(make_card(index=index) for index in range(cards))) if cards else make_cards(cards=())
    assert expected == judged(check.gpu_seen(make_facts(framework=make_framework(gpus=gpus), cards=told)))


def test_a_card_that_is_not_seen_is_explained_in_tensorflows_own_words():
    said = ("failed call to cuInit: CUDA_ERROR_NO_DEVICE", "Cannot dlopen some GPU libraries.")
    assert "; ".join(said) in check.gpu_seen(with_framework(gpus=0, said=said)).found


def test_a_card_that_is_not_seen_for_want_of_wheels_says_what_to_install():
    finding = check.gpu_seen(with_framework(gpus=0, wheels={}))
    assert ("no CUDA wheel is installed" in finding.found, "tensorflow[and-cuda]" in finding.advice) == (True, True)


def test_a_build_without_cuda_beside_a_card_is_an_error():
    assert ("no_cuda_build", ERROR) == judged(check.gpu_seen(with_framework(gpus=0, cuda_build=False, cuda=None)))


@pytest.mark.parametrize(
    ("expected", "driver", "gpus"),
    [
        (("ok", OK), "525.60.13", 1),
        (("driver_old", ERROR), "520.61.05", 0),
        (("driver_old", WARNING), "520.61.05", 1),
        (("unknown", INFO), None, 1),
    ],
)
def test_the_driver_is_held_against_the_first_of_the_builds_cuda(expected, driver, gpus):
    assert expected == judged(check.driver(make_facts(framework=make_framework(gpus=gpus), cards=make_cards(driver=driver))))


def test_which_driver_an_unlisted_cuda_needs_is_not_guessed():
    assert ("unknown", INFO) == judged(check.driver(with_framework(cuda="14.0")))


@pytest.mark.parametrize(
    ("expected", "wheels"),
    [
        (("ok", OK), {"nvidia-cuda-runtime-cu12": "12.5.82"}),
        (("ok", OK), {"nvidia-cuda-runtime-cu12": "12.9.79"}),
        (("cuda_older", WARNING), {"nvidia-cuda-runtime-cu12": "12.4.127"}),
        (("cuda_major", ERROR), {"nvidia-cuda-runtime-cu11": "11.8.89"}),
        (("cuda_major", ERROR), {"nvidia-cuda-runtime": "13.0.48"}),
        (("ok", OK), {"nvidia-cuda-runtime-cu11": "11.8.89", "nvidia-cuda-runtime-cu12": "12.5.82", "nvidia-cuda-runtime": "13.0.48"}),
        (("from_system", INFO), {}),
    ],
)
def test_the_installed_cuda_is_held_against_the_builds(expected, wheels):
    assert expected == judged(check.cuda_runtime(with_framework(wheels=wheels)))


@pytest.mark.parametrize(
    ("expected", "cudnn", "installed"),
    [
        (("ok", OK), "9", "9.3.0.75"),
        (("cudnn_wrong", ERROR), "9", "9.2.1.18"),
        (("ok", OK), "9.1", "9.2.1.18"),
        (("cudnn_wrong", ERROR), "9", "8.9.7.29"),
        (("cudnn_wrong", ERROR), "8", "9.3.0.75"),
    ],
)
def test_the_installed_cudnn_must_be_of_the_major_version_and_no_older_than_tested(expected, cudnn, installed):
    facts = with_framework(cudnn=cudnn, wheels={"nvidia-cudnn-cu12": installed})
    assert expected == judged(check.cudnn(facts))


def test_without_any_wheel_and_without_a_gpu_the_versions_are_unknown():
    facts = with_framework(wheels={}, gpus=0)
    assert [("unknown", INFO)] * 2 == [judged(find(facts)) for find in (check.cuda_runtime, check.cudnn)]


@pytest.mark.parametrize(
    ("expected", "version", "cuda", "cudnn"),
    [
        (("ok", OK), "2.21.0", "12.5.1", "9"),
        (("ok", OK), "2.12.0", "11.8", "8.6"),
        (("own_build", INFO), "2.12.0", "11.7", "8.6"),
        (("own_build", INFO), "2.21.0", "12.5", "8"),
        (("own_build", INFO), "2.21.0", "13.0", "9"),
        (("not_in_table", INFO), "2.99.0", "12.5", "9"),
    ],
)
def test_a_build_is_held_against_its_tested_configuration(expected, version, cuda, cudnn):
    assert expected == judged(check.configuration(with_framework(version=version, cuda=cuda, cudnn=cudnn)))


@pytest.mark.parametrize(
    ("expected", "capability"),
    [
        (("ok", OK), 9.0),
        (("ok", OK), 8.0),
        (("ok", OK), 8.6),  # of the major version of sm_80
        (("ok", OK), 7.5),
        (("ptx_only", WARNING), 10.0),
        (("ptx_only", WARNING), 12.0),
        (("no_code", ERROR), 5.2),
        (("no_code", ERROR), 3.5),
        (("unknown", INFO), None),
    ],
)
def test_a_card_is_held_against_the_code_that_the_build_carries(expected, capability):
    assert expected == judged(check.architecture(make_facts(), make_card(compute_capability=capability)))


def test_machine_code_does_not_run_on_an_earlier_card_of_its_major_version():
    facts = with_framework(code=MachineCode((89,), (), "here"))
    assert ("no_code", ERROR) == judged(check.architecture(facts, make_card(compute_capability=8.6)))


@pytest.mark.parametrize(
    ("expected", "driver_cuda"), [(("ptx_too_new", ERROR), "12.4"), (("ptx_only", WARNING), "12.5"), (("ptx_only", WARNING), None)]
)
def test_a_driver_older_than_the_builds_cuda_cannot_compile_its_ptx(expected, driver_cuda):
    facts = make_facts(cards=make_cards(driver_cuda=driver_cuda))
    assert expected == judged(check.architecture(facts, make_card(compute_capability=12.0)))


def test_it_is_said_where_the_code_was_read():
    assert (
        "what the build says" in check.architecture(with_framework(code=MachineCode((90,), (), "what the build says of itself")), make_card()).found
    )


def test_a_build_that_does_not_tell_its_code_is_unknown():
    assert ("unknown", INFO) == judged(check.architecture(with_framework(code=None), make_card()))


def test_nothing_about_cuda_is_said_of_a_build_without_it():
    facts = with_framework(cuda_build=False, cuda=None, cudnn=None, code=None)
    finds = (check.driver, check.cuda_runtime, check.cudnn, check.configuration)
    assert [None] * 5 == [*(find(facts) for find in finds), check.architecture(facts, make_card())]
