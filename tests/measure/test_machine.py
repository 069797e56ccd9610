"""What the machine is, and which cards NVML lets us see."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from harness.measure.machine import (
    card_node,
    cpu_governor,
    cpu_topology,
    disk,
    framework_build,
    free_memory_bytes,
    hardware_slug,
    read_machine,
    slugify,
)
from harness.measure.telemetry import nvml
from harness.model import Gpu

CARDS = (Gpu(0, "NVIDIA H200", "GPU-aaa-1", 150 << 30, 9.0), Gpu(1, "NVIDIA H200", "GPU-bbb-2", 150 << 30, 9.0))


class FakeNVMLError(Exception):
    pass


def make_pynvml(**overrides) -> SimpleNamespace:
    """Return a binding with two cards; an override that is an exception is raised by the call of that name."""
    calls = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: CARDS[handle].name.encode(),
        "nvmlDeviceGetUUID": lambda handle: CARDS[handle].uuid,
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=CARDS[handle].memory_bytes),
        "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
    }

    def raising(error):
        def call(*_):
            raise error

        return call

    changed = {name: raising(value) if isinstance(value, Exception) else value for name, value in overrides.items()}
    return SimpleNamespace(NVMLError=FakeNVMLError, **{**calls, **changed})


def devices_with(monkeypatch, binding, env=None):
    monkeypatch.setitem(sys.modules, "pynvml", binding)
    return nvml.devices(env or {})


def test_all_cards_are_listed_where_nothing_is_masked(monkeypatch):
    assert (CARDS, None) == devices_with(monkeypatch, make_pynvml())


@pytest.mark.parametrize("mask", ["1", "GPU-bbb-2", "GPU-bbb", "1,7", " 1 ,-1,0"])
def test_a_mask_by_index_or_uuid_shows_the_card_it_names(monkeypatch, mask: str):
    assert (CARDS[1:], None) == devices_with(monkeypatch, make_pynvml(), {"CUDA_VISIBLE_DEVICES": mask})


def test_a_mask_s_order_is_kept(monkeypatch):
    assert CARDS[::-1] == devices_with(monkeypatch, make_pynvml(), {"CUDA_VISIBLE_DEVICES": "1,0"})[0]


@pytest.mark.parametrize("mask", ["", "-1", "9", "GPU-", "0x"])
def test_a_mask_that_lets_nothing_through_is_the_reason(monkeypatch, mask: str):
    gpus, reason = devices_with(monkeypatch, make_pynvml(), {"CUDA_VISIBLE_DEVICES": mask})
    assert ((), True) == (gpus, "CUDA_VISIBLE_DEVICES" in reason)


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetName"])
def test_an_error_of_nvml_is_a_reason_and_no_crash(monkeypatch, call: str):
    gpus, reason = devices_with(monkeypatch, make_pynvml(**{call: FakeNVMLError("GPU is lost")}))
    assert ((), True) == (gpus, "GPU is lost" in reason)


def test_a_card_s_figure_that_cannot_be_read_is_null(monkeypatch):
    error = FakeNVMLError("not supported")
    gpus, _ = devices_with(monkeypatch, make_pynvml(nvmlDeviceGetMemoryInfo=error, nvmlDeviceGetCudaComputeCapability=error))
    assert [(None, None)] * 2 == [(gpu.memory_bytes, gpu.compute_capability) for gpu in gpus]


def test_a_failing_shutdown_costs_nothing(monkeypatch):
    assert CARDS == devices_with(monkeypatch, make_pynvml(nvmlShutdown=FakeNVMLError("gone")))[0]


def test_a_missing_binding_is_a_reason(monkeypatch):
    assert ((), True) == ((answer := devices_with(monkeypatch, None))[0], "nvidia-ml-py" in answer[1])


def test_another_package_of_that_name_is_a_reason(monkeypatch):
    assert ((), True) == ((answer := devices_with(monkeypatch, SimpleNamespace()))[0], "is not nvidia-ml-py" in answer[1])


@pytest.mark.parametrize(
    ("model", "gpus", "slug"),
    [
        ("Intel(R) Xeon(R) Processor @ 2.60GHz", (), "xeon-2c-23gib"),
        ("AMD EPYC 7763 64-Core Processor", CARDS, "epyc-2c-23gib-2x-h200"),
        ("", (), "cpu-2c-23gib"),
    ],
)
def test_a_slug_says_the_hardware_in_a_few_words(model: str, gpus: tuple[Gpu, ...], slug: str):
    assert slug == hardware_slug(model, 2, 23 << 30, gpus)


def test_a_name_that_was_given_replaces_the_slug():
    assert "my-box-2" == read_machine("My box/2").slug


def test_a_name_of_nothing_but_signs_is_still_a_folder_name():
    assert "machine" == slugify("../..")


def test_the_governor_is_that_of_all_cores(tmp_path):
    for core, governor in enumerate(("performance", "powersave", "performance")):
        folder = tmp_path / f"cpu{core}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(governor + "\n")
    assert "performance,powersave" == cpu_governor(tmp_path)


def test_a_machine_without_governors_has_none(tmp_path):
    assert None is cpu_governor(tmp_path)


def make_topology(folder, *places: tuple[str, str, str]):
    """One thread each: (socket, die, core)."""
    for thread, (socket, die, core) in enumerate(places):
        topology = folder / f"cpu{thread}" / "topology"
        topology.mkdir(parents=True)
        for name, text in (("physical_package_id", socket), ("die_id", die), ("core_id", core)):
            (topology / name).write_text(text + "\n")
    return folder


def test_threads_of_one_core_are_one_core(tmp_path):
    assert (1, 2) == cpu_topology(make_topology(tmp_path, ("0", "0", "0"), ("0", "0", "1"), ("0", "0", "0"), ("0", "0", "1")))


def test_cores_of_the_same_number_on_other_sockets_and_dies_are_others(tmp_path):
    assert (2, 3) == cpu_topology(make_topology(tmp_path, ("0", "0", "0"), ("0", "1", "0"), ("1", "0", "0")))


@pytest.mark.parametrize("places", [(), (("-1", "0", "0"),), (("0", "0", "0"), ("0", "0", ""))])
def test_a_topology_that_the_kernel_does_not_tell_is_null(tmp_path, places):
    assert (None, None) == cpu_topology(make_topology(tmp_path, *places))


def test_this_machine_can_be_read_without_tensorflow():
    before = "tensorflow" in sys.modules
    machine = read_machine(None)
    assert machine.cores >= 1
    assert machine.memory_bytes > 0
    assert "numpy" in machine.packages
    assert before == ("tensorflow" in sys.modules)


def test_no_more_memory_is_free_than_there_is():
    assert 0 < free_memory_bytes() <= read_machine(None).memory_bytes


def installed(folder, monkeypatch, text: str) -> None:
    """Put a package of the name `fake_framework` where imports are looked for, with this file about its build."""
    place = folder / "fake_framework" / "python" / "platform"
    place.mkdir(parents=True)
    (folder / "fake_framework" / "__init__.py").write_text("raise AssertionError('imported')")
    (place / "build_info.py").write_text(text)
    monkeypatch.syspath_prepend(folder)


def test_a_build_is_read_without_importing_the_framework(tmp_path, monkeypatch):
    pairs = "[('cuda_version', '12.5.1'), ('cuda_compute_capabilities', ['sm_80', 'compute_90']), ('is_cuda_build', True)]"
    installed(tmp_path, monkeypatch, f"import collections\nbuild_info = collections.OrderedDict({pairs})\n")
    assert {"cuda_version": "12.5.1", "cuda_compute_capabilities": "sm_80, compute_90", "is_cuda_build": True} == framework_build("fake_framework")


@pytest.mark.parametrize("text", ["", "build_info = 7", "build_info = collections.OrderedDict(list(x))", "build_info = (", "import os\nos.abort()"])
def test_a_build_that_tells_nothing_is_unknown(tmp_path, monkeypatch, text: str):
    installed(tmp_path, monkeypatch, text)
    assert {} == framework_build("fake_framework")


def test_a_framework_that_is_not_installed_has_no_build():
    assert {} == framework_build("no_such_framework")


@pytest.mark.parametrize(("rotational", "words"), [("0", "WD Blue, solid state"), ("1", "WD Blue, spinning"), (None, "WD Blue")])
def test_the_disk_under_a_partition_is_the_whole_drive(tmp_path, rotational: str | None, words: str):
    whole = tmp_path / "sda"
    (whole / "sda1").mkdir(parents=True)
    (whole / "sda1" / "partition").write_text("1")
    (whole / "device").mkdir()
    (whole / "device" / "model").write_text("WD Blue \n")
    if rotational is not None:
        (whole / "queue").mkdir()
        (whole / "queue" / "rotational").write_text(rotational + "\n")
    number = tmp_path.stat().st_dev
    devices = tmp_path / "block"
    devices.mkdir()
    (devices / f"{os.major(number)}:{os.minor(number)}").symlink_to(whole / "sda1")
    assert words == disk(tmp_path, devices)


def test_a_folder_without_a_drive_of_its_own_has_none(tmp_path):
    assert disk(tmp_path, tmp_path) is None


@pytest.mark.parametrize(("told", "node"), [("1", 1), ("0", 0), ("-1", None), ("?", None)])
def test_a_card_hangs_on_the_node_that_the_kernel_tells(tmp_path, told: str, node: int | None):
    (tmp_path / "0000:17:00.0").mkdir()
    (tmp_path / "0000:17:00.0" / "numa_node").write_text(told)
    assert node == card_node("00000000:17:00.0".upper(), tmp_path)
    assert card_node(None, tmp_path) is None
