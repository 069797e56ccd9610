"""What is read of a machine: from made-up files of the kernel, from a binding without a card, from children that misbehave."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.doctor.children import Ended, run_to_end
from harness.doctor.examine import full_looks, take_lock
from harness.doctor.read_cards import read_cards
from harness.doctor.read_framework import about_gpus, answers, framework, machine_code, read_framework, why_not
from harness.doctor.read_host import nvidia_cards_on_bus, performance_variables, read_host, read_storage
from harness.measure.lock import machine_lock
from harness.measure.telemetry.nvml.setup import QUESTIONS
from harness.model import Gpu
from tests.doctor.builders import make_container, make_elf

CARD = Gpu(0, "NVIDIA H200", "GPU-aaa-1", 150 << 30, 9.0)


# ---------------------------------------------------------------- the host


def put(path, text: str):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def host_of(tmp_path, **files: str):
    for name, text in files.items():
        put(tmp_path / "system" / name.replace("__", "/"), text + "\n")
    return read_host(None, root=tmp_path, system=tmp_path / "system", huge_pages=tmp_path / "huge")


def test_governors_of_the_allowed_cores_are_counted(tmp_path):
    cores = sorted(os.sched_getaffinity(0))
    for core in cores:
        put(tmp_path / f"system/cpu/cpu{core}/cpufreq/scaling_governor", "powersave\n")
    assert {"powersave": len(cores)} == host_of(tmp_path).governors


@pytest.mark.parametrize(
    ("turbo", "files"),
    [
        (True, {"cpu__intel_pstate__no_turbo": "0"}),
        (False, {"cpu__intel_pstate__no_turbo": "1"}),
        (True, {"cpu__cpufreq__boost": "1"}),
        (False, {"cpu__cpufreq__boost": "0"}),
        (None, {}),
    ],
)
def test_turbo_is_read_where_the_kernel_has_a_switch_for_it(tmp_path, turbo, files):
    host = host_of(tmp_path, **files)
    assert (turbo, turbo is None) == (host.turbo, "turbo" in host.missing)


def test_the_other_settings_of_the_kernel_are_read(tmp_path):
    put(tmp_path / "huge", "always [madvise] never\n")
    host = host_of(tmp_path, cpu__smt__active="1", clocksource__clocksource0__current_clocksource="kvm-clock")
    assert (True, "kvm-clock", "madvise") == (host.smt, host.time_source, host.huge_pages)


def test_what_the_kernel_does_not_tell_is_missing_with_its_reason(tmp_path):
    host = host_of(tmp_path)
    assert [None] * 5 == [host.governors, host.turbo, host.smt, host.time_source, host.huge_pages]
    assert {"governors", "turbo", "smt", "time_source", "huge_pages"} <= set(host.missing)


def test_this_machine_can_be_read():
    host = read_host(None)
    assert 1 <= host.cores_allowed
    assert 0 < host.memory_free_bytes <= host.memory_bytes
    assert 0 < host.results.free_bytes


def test_space_is_that_of_the_folder_that_would_be_made(tmp_path):
    assert read_storage(tmp_path).free_bytes == pytest.approx(read_storage(tmp_path / "not/yet/there").free_bytes, rel=0.1)


def test_variables_that_may_change_figures_are_named_and_shown_only_if_workers_get_them():
    given = {"TF_XLA_FLAGS": "a", "OMP_NUM_THREADS": "2", "LD_PRELOAD": "secret", "GOMP_SPINCOUNT": "0", "PATH": "x"}
    given |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_CLI_CONFIG_FILE": "x", "NCCL_VERSION": "2"}
    assert {"GOMP_SPINCOUNT": None, "LD_PRELOAD": None, "OMP_NUM_THREADS": "2", "TF_XLA_FLAGS": "a"} == performance_variables(given)


def test_nvidia_cards_on_the_bus_are_counted_and_other_devices_are_not(tmp_path):
    for name, vendor, kind in (("a", "0x10de", "0x030200"), ("b", "0x10de", "0x030000"), ("c", "0x10de", "0x040300"), ("d", "0x8086", "0x030000")):
        put(tmp_path / name / "vendor", vendor + "\n")
        put(tmp_path / name / "class", kind + "\n")
    (tmp_path / "without").mkdir()
    assert (2, None) == (nvidia_cards_on_bus(tmp_path), nvidia_cards_on_bus(tmp_path / "gone"))


# ---------------------------------------------------------------- the lock


def test_who_measures_is_named_at_once(tmp_path):
    with machine_lock("run-one", tell=pytest.fail, path=tmp_path / "lock"), contextlib.ExitStack() as held:
        assert (f"run-one (process {os.getpid()})", None) == take_lock(held, tmp_path / "lock")


def test_a_free_lock_is_held_while_we_look(tmp_path):
    with contextlib.ExitStack() as held:
        assert (None, None) == take_lock(held, tmp_path / "lock")
        with contextlib.ExitStack() as second:
            assert "harness.doctor" in take_lock(second, tmp_path / "lock")[0]
    with machine_lock("next", tell=pytest.fail, path=tmp_path / "lock"):
        pass


def test_a_lock_that_cannot_be_made_is_unknown_with_its_reason(tmp_path):
    with contextlib.ExitStack() as held:
        holder, reason = take_lock(held, tmp_path / "missing/lock")
    assert (None, True) == (holder, "cannot be opened" in reason)


def test_the_main_job_has_looks_and_an_error_rate():
    full = full_looks()
    assert (True, True, True) == (full.rounds > full.looks > 1, 0 < full.alpha < 0.5, full.rounds >= 3)


# ---------------------------------------------------------------- cards


class FakeNVMLError(Exception):
    pass


def raising(error: Exception):
    def call(*_):
        raise error

    return call


def make_nvml(**overrides) -> SimpleNamespace:
    """Return a binding with one card; an override that is an exception is raised by the call of that name."""
    calls = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetUUID": lambda handle: CARD.uuid,
        "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
        "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": lambda handle: "the card of " + handle,
        "nvmlDeviceGetGpuInstanceId": lambda handle: 1,
        "nvmlSystemGetDriverVersion": lambda: b"580.65.06",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 13000,
        "nvmlDeviceGetCurrPcieLinkGeneration": lambda card: 1,
        "nvmlDeviceGetMaxPcieLinkGeneration": lambda card: 5,
        "nvmlDeviceGetCurrPcieLinkWidth": lambda card: 8,
        "nvmlDeviceGetMaxPcieLinkWidth": lambda card: 16,
        "nvmlDeviceGetPersistenceMode": lambda card: 1,
        "nvmlDeviceGetComputeMode": lambda card: 3,
        "nvmlDeviceGetPowerManagementLimit": lambda card: 650_500,
        "nvmlDeviceGetPowerManagementDefaultLimit": lambda card: 700_000,
        "nvmlDeviceGetEccMode": lambda card: [1, 1],
        "nvmlDeviceGetMigMode": lambda card: [0, 1],
        "nvmlDeviceGetComputeRunningProcesses": lambda card: [SimpleNamespace(pid=7), SimpleNamespace(pid=os.getpid())],
        "nvmlDeviceGetGraphicsRunningProcesses": lambda card: [SimpleNamespace(pid=7), SimpleNamespace(pid=8)],
    }
    changed = {name: raising(value) if isinstance(value, Exception) else value for name, value in overrides.items()}
    return SimpleNamespace(NVMLError=FakeNVMLError, **{**calls, **changed})


def cards_with(monkeypatch, binding):
    monkeypatch.setitem(sys.modules, "pynvml", binding)
    return read_cards((CARD,), None, 1)


def test_a_card_is_read_in_the_units_of_its_fields(monkeypatch):
    cards = cards_with(monkeypatch, make_nvml())
    card = cards.cards[0]
    assert ("580.65.06", "13.0", 1, None) == (cards.driver, cards.driver_cuda, cards.on_bus, cards.reason)
    assert (1, 5, 8, 16) == (card.pcie_generation, card.pcie_generation_max, card.pcie_width, card.pcie_width_max)
    assert (True, "exclusive_process", 650.5, 700.0, True, False) == (
        card.persistence, card.compute_mode, card.power_limit_w, card.power_default_w, card.ecc, card.mig,
    )  # fmt: skip
    assert {} == card.missing


def test_processes_are_counted_once_and_without_our_own(monkeypatch):
    assert 2 == cards_with(monkeypatch, make_nvml()).cards[0].others


def test_a_question_that_a_card_does_not_answer_is_missing_and_the_others_are_not(monkeypatch):
    card = cards_with(monkeypatch, make_nvml(nvmlDeviceGetMigMode=FakeNVMLError("Not Supported"))).cards[0]
    assert (None, {"mig": "Not Supported"}, 16) == (card.mig, card.missing, card.pcie_width_max)


def test_a_question_that_an_older_binding_does_not_know_is_missing(monkeypatch):
    binding = make_nvml()
    del binding.nvmlDeviceGetMigMode, binding.nvmlSystemGetCudaDriverVersion_v2
    cards = cards_with(monkeypatch, binding)
    assert ({"mig"}, None) == (set(cards.cards[0].missing), cards.driver_cuda)


def test_a_code_of_the_library_is_a_reason_in_words(monkeypatch):
    refused = FakeNVMLError("Insufficient Permissions")
    refused.value = 4
    card = cards_with(monkeypatch, make_nvml(nvmlDeviceGetPersistenceMode=refused)).cards[0]
    assert (None, "this user is not permitted to read it") == (card.persistence, card.why("persistence"))


def test_what_no_card_can_mean_is_missing(monkeypatch):
    garbage = dict.fromkeys(("nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetMaxPcieLinkWidth"), lambda card: 2**32 - 1)
    card = cards_with(monkeypatch, make_nvml(**garbage)).cards[0]
    assert (None, None, {"power_limit_w", "pcie_width_max"}) == (card.power_limit_w, card.pcie_width_max, set(card.missing))
    assert "which cannot be" in card.why("pcie_width_max")


def test_the_library_is_given_back(monkeypatch):
    given_back = []
    cards_with(monkeypatch, make_nvml(nvmlShutdown=lambda: given_back.append("back")))
    assert ["back"] == given_back


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetHandleByUUID"])
def test_a_card_that_is_lost_meanwhile_keeps_its_name_and_a_reason(monkeypatch, call):
    card = cards_with(monkeypatch, make_nvml(**{call: FakeNVMLError("GPU is lost")})).cards[0]
    assert (CARD.name, set(QUESTIONS), True) == (card.name, set(card.missing), "GPU is lost" in card.why("ecc"))


def test_slices_of_one_card_are_one_card(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", make_nvml())
    slices = (CARD, replace(CARD, uuid="MIG-1"), replace(CARD, index=1, uuid="MIG-2"))
    assert [0, 1] == [card.index for card in read_cards(slices, None, 1).cards]


def test_a_slice_has_the_settings_of_its_card(monkeypatch):
    limits = {"the card of MIG-1": 650_000}
    monkeypatch.setitem(sys.modules, "pynvml", make_nvml(nvmlDeviceGetPowerManagementLimit=limits.__getitem__))
    (card,) = read_cards((replace(CARD, uuid="MIG-1", mig="slice"),), None, 1).cards
    assert (650.0, {}) == (card.power_limit_w, card.missing)


def test_without_a_card_nvml_is_not_asked(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert ((), "no driver", 2) == ((told := read_cards((), "no driver", 2)).cards, told.reason, told.on_bus)


# ---------------------------------------------------------------- TensorFlow's child


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_child_that_ends_is_told_whole():
    ended = run_to_end(python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"), os.environ, 60)
    assert Ended(3, "out\n", "err\n") == ended


def test_a_child_that_hangs_is_ended_with_its_group_at_its_deadline():
    code = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(subprocess.Popen(['sleep', '600']).pid, flush=True)\n"
        "time.sleep(600)"
    )
    ended = run_to_end(python(code), os.environ, 3.0)
    assert None is ended.code
    grandchild = int(ended.out)
    until = time.monotonic() + 10
    while alive(grandchild) and time.monotonic() < until:
        time.sleep(0.02)
    assert not alive(grandchild)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_what_outlives_a_child_is_ended_too():
    ended = run_to_end(python("import subprocess; print(subprocess.Popen(['sleep', '600']).pid)"), os.environ, 60)
    until = time.monotonic() + 10
    while alive(int(ended.out)) and time.monotonic() < until:
        time.sleep(0.02)
    assert (0, False) == (ended.code, alive(int(ended.out)))


HANGS = 'import time; print(\'{"python": "3.11.0"}\', flush=True); print(\'{"tensorflow": "2.21.0"}\', flush=True); time.sleep(600)'


def test_a_hang_keeps_what_was_said_before_it():
    told = read_framework(deadline_s=3.0, command=python(HANGS))
    assert ("3.11.0", "2.21.0", None) == (told.python, told.version, told.gpus)
    assert "looking for GPUs took longer than 3 s and was given up" == told.reason


def test_a_child_killed_by_a_signal_names_it():
    told = read_framework(command=python("import os; os.kill(os.getpid(), 4)"))
    assert "importing TensorFlow was ended by SIGILL" == told.reason


def test_an_interpreter_that_is_not_there_is_a_reason():
    assert "could not be started" in read_framework("/no/such/python").reason


@pytest.mark.parametrize(
    ("reason", "told", "ended"),
    [
        (None, {"tensorflow": "2.21.0", "gpus": 0}, Ended(0, "", "")),
        ("ImportError: no AVX", {"error": "ImportError: no AVX"}, Ended(0, "", "")),
        ("importing TensorFlow ended with exit code 1: No module named harness", {}, Ended(1, "", "x\nNo module named harness\n\n")),
        ("importing TensorFlow ended with exit code 0: it said nothing", {}, Ended(0, "", "")),
        ("importing TensorFlow was ended by signal 99", {}, Ended(-99, "", "")),
    ],
)
def test_an_answer_that_is_not_whole_has_a_reason(reason, told, ended):
    assert reason == why_not(told, ended, 1.0)


def test_lines_that_are_no_objects_say_nothing():
    assert {"a": 2, "b": 3} == answers('{"a": 1}\n[1]\nWelcome\n{"a": 2, "b": 3}\n{"gpus": ')


def test_tensorflows_lines_about_gpus_are_told_once_and_without_their_place():
    err = (
        "2026-01-01 00:00:00.1: E external/local_xla/xla/cuda_fft.cc:467] Unable to register cuFFT factory: Attempting to register\n"
        "2026-01-01 00:00:00.2: I external/local_xla/xla/tsl/cuda/cudart_stub.cc:32] Could not find cuda drivers on your machine, GPU will not be used.\n"
        "2026-01-01 00:00:00.3: I external/local_xla/xla/tsl/cuda/cudart_stub.cc:32] Could not find cuda drivers on your machine, GPU will not be used.\n"
        "2026-01-01 00:00:00.4: I tensorflow/core/cpu_feature_guard.cc:210] This binary is optimized\n"
        "2026-01-01 00:00:00.5: I dso_loader.cc:63] Could not load dynamic library 'libcudnn.so.9'; dlerror: libcudnn.so.9: cannot open [x] y\n"
    )
    assert (
        "Could not find cuda drivers on your machine, GPU will not be used.",
        "Could not load dynamic library 'libcudnn.so.9'; dlerror: libcudnn.so.9: cannot open [x] y",
    ) == about_gpus(err)


def test_the_facts_are_what_the_child_has_said():
    told = {
        "python": "3.11.9",
        "wheels": {"nvidia-cudnn-cu12": "9"},
        "tensorflow": "2.21.0",
        "cuda_build": True,
        "cuda": "12.5.1",
        "cudnn": "9",
        "gpus": 1,
    }
    facts = framework(told, Ended(0, "", ""), 1.0, None)
    assert ("3.11.9", "2.21.0", True, "12.5.1", "9", 1, {"nvidia-cudnn-cu12": "9"}, None) == (
        facts.python, facts.version, facts.cuda_build, facts.cuda, facts.cudnn, facts.gpus, facts.wheels, facts.reason,
    )  # fmt: skip


def test_the_libraries_are_believed_before_the_build(tmp_path):
    (tmp_path / "libtensorflow_cc.so.2").write_bytes(make_elf(b".nv_fatbin", make_container((2, 80), (1, 80))))
    code = machine_code(tmp_path, ["sm_90"])
    assert ((80,), (80,), "the libraries' fat binaries") == (code.native, code.ptx, code.source)


def test_without_readable_libraries_the_build_is_asked_and_named_as_the_source(tmp_path):
    (tmp_path / "libtensorflow_cc.so.2").write_bytes(b"no library")
    code = machine_code(tmp_path, ["sm_60", "compute_90"])
    assert ((60, 90), (90,), "what the build says of itself") == (code.native, code.ptx, code.source)


@pytest.mark.tensorflow
def test_the_installed_tensorflow_tells_what_it_is():
    told = read_framework()
    assert (None, True, True) == (told.reason, told.version.startswith("2."), told.gpus >= 0)
    assert f"{sys.version_info[0]}.{sys.version_info[1]}.{sys.version_info[2]}" == told.python
    assert (told.code is not None) == told.cuda_build
