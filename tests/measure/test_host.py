"""The machine around the cards, read from files such as a kernel writes."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from harness.measure.telemetry.host import HostReader, PackageEnergy, Places

SECOND_NS = 10**9
KIB = 1024


class Machine:
    """Files of a kernel in a folder, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.places = Places(folder / "proc", folder / "powercap", folder / "block")
        self.pids: list[int] = []
        self.ns = 0
        self.write("proc/stat", "cpu 0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 1000 0 0 0 0 0 0\ncpu1 0 0 0 1000 0 0 0 0 0 0\n")

    def write(self, name: str, text: str) -> Path:
        path = self.places.proc.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def idle(self, *ticks: int, waiting: int = 0, stolen: int = 0) -> None:
        """Set the cores' idle time in ticks of a hundredth of a second."""
        rows = [f"cpu{core} 0 0 0 {idle} {waiting} 0 0 {stolen} 0 0" for core, idle in enumerate(ticks)]
        self.write("proc/stat", "\n".join(["cpu 0 0 0 0 0 0 0 0 0 0", *rows, ""]))

    def process(self, pid: int, rss_kib: int, peak_kib: int) -> None:
        self.pids.append(pid)
        self.write(f"proc/{pid}/status", f"Name:\tpython\nVmHWM:\t{peak_kib} kB\nVmRSS:\t{rss_kib} kB\n")

    def package(self, zone: str, name: str, energy_uj: int, range_uj: int = 1_000_000) -> Path:
        self.write(f"powercap/{zone}/name", name + "\n")
        self.write(f"powercap/{zone}/max_energy_range_uj", f"{range_uj}\n")
        return self.write(f"powercap/{zone}/energy_uj", f"{energy_uj}\n")

    def reader(self, period_s: float = 1.0) -> HostReader:
        return HostReader(lambda: self.pids, period_s=period_s, places=self.places, cores=lambda: (0, 1), clock=lambda: self.ns)


@pytest.fixture
def machine(tmp_path, monkeypatch) -> Machine:
    monkeypatch.setattr(os, "sysconf", {"SC_CLK_TCK": 100, "SC_PAGE_SIZE": 4096}.__getitem__)
    return Machine(tmp_path)


def told(reader: HostReader) -> dict[str, Any]:
    return {sample.name: sample.reason if sample.value is None else sample.value for sample in reader.sample()}


def test_a_share_of_the_cores_is_busy_time_between_two_samples(machine):
    reader = machine.reader()
    assert "cpu_share" not in told(reader)
    machine.ns = SECOND_NS
    machine.idle(1100, 1050)  # one core idle throughout, the other for half of the second
    assert pytest.approx(0.25) == told(reader)["cpu_share"]


def test_time_spent_waiting_or_stolen_is_not_busy(machine):
    reader = machine.reader()
    told(reader)
    machine.ns = SECOND_NS
    machine.idle(1000, 1000, waiting=50, stolen=50)
    assert 0.0 == told(reader)["cpu_share"]


def test_a_share_stays_within_its_bounds_though_the_kernel_counts_in_ticks(machine):
    reader = machine.reader()
    told(reader)
    machine.ns = SECOND_NS
    machine.idle(1101, 1101)
    assert 0.0 == told(reader)["cpu_share"]


def test_a_last_sample_soon_after_another_is_no_share_of_its_own(machine):
    reader = machine.reader()
    told(reader)
    machine.ns = SECOND_NS // 4
    machine.idle(1000, 1000)
    assert "cpu_share" not in told(reader)
    machine.ns = SECOND_NS
    machine.idle(1100, 1100)
    assert 0.0 == told(reader)["cpu_share"]


def test_a_gap_between_rounds_is_no_share(machine):
    reader = machine.reader()
    told(reader)
    machine.ns = 60 * SECOND_NS
    machine.idle(1100, 1100)
    assert "cpu_share" not in told(reader)


def test_memory_is_that_of_the_workers_that_live(machine):
    machine.process(11, 100, 300)
    machine.process(12, 50, 200)
    machine.pids.append(13)  # has just ended
    values = told(machine.reader())
    assert (150.0 * KIB, 300.0 * KIB) == (values["rss_bytes"], values["peak_rss_bytes"])


def test_memory_of_nobody_is_not_none_at_all(machine):
    assert "no worker lives" == told(machine.reader())["rss_bytes"]


def test_energy_is_that_of_all_packages_since_the_first_sample(machine):
    machine.package("intel-rapl:0", "package-0", 100)
    machine.package("intel-rapl:0:0", "dram", 7)
    machine.package("intel-rapl:1", "package-1", 200)
    machine.package("intel-rapl:2", "psys", 9)
    reader = machine.reader()
    assert 0.0 == told(reader)["cpu_energy_j"]
    for zone, name, energy_uj in (("intel-rapl:0", "package-0", 150_100), ("intel-rapl:1", "package-1", 50_200), ("intel-rapl:2", "psys", 900_000)):
        machine.package(zone, name, energy_uj)
    assert pytest.approx(0.2) == told(reader)["cpu_energy_j"]


def test_an_energy_counter_that_started_again_is_made_good(machine):
    machine.package("intel-rapl:0", "package-0", 900_000)
    reader = machine.reader()
    told(reader)
    machine.package("intel-rapl:0", "package-0", 200_000)
    assert pytest.approx(0.3) == told(reader)["cpu_energy_j"]


def test_a_machine_without_energy_counters_says_so(machine):
    assert "the processors offer no energy counter (RAPL) here" == told(machine.reader())["cpu_energy_j"]


def test_energy_counters_that_are_kept_for_root_are_a_reason(machine, monkeypatch):
    machine.package("intel-rapl:0", "package-0", 1).chmod(stat.S_IWUSR)
    monkeypatch.setattr(Path, "read_text", refuse_unreadable(Path.read_text))
    ((_, value, reason),) = PackageEnergy(machine.places.powercap).read()
    assert (None, "this user may not read the energy counters (RAPL); the kernel keeps them for root") == (value, reason)


def refuse_unreadable(read_text):
    """Root may read everything; here it may not."""

    def read(path: Path, *arguments, **named) -> str:
        if not path.stat().st_mode & stat.S_IRUSR:
            raise PermissionError(13, "Permission denied")
        return read_text(path, *arguments, **named)

    return read


def test_disks_are_counted_once(machine):
    rows = [
        "8 0 sda 5 0 100 0 5 0 40 0 0 0 0",
        "8 1 sda1 5 0 100 0 5 0 40 0 0 0 0",
        "7 0 loop0 5 0 9 0 5 0 9 0 0 0 0",
        "253 0 dm-0 5 0 9 0 5 0 9 0 0 0 0",
    ]
    machine.write("proc/diskstats", "\n".join([*rows, "259 0 nvme0n1 5 0 10 0 5 0 2 0 0 0 0", ""]))
    for name in ("sda", "loop0", "dm-0", "nvme0n1"):  # a partition has no folder of its own
        machine.write(f"block/{name}/size", "1\n")
    values = told(machine.reader())
    assert (110.0 * 512, 42.0 * 512) == (values["disk_read_bytes"], values["disk_written_bytes"])


def test_a_machine_without_disks_says_so(machine):
    assert "the kernel lists no disk here" == told(machine.reader())["disk_read_bytes"]


def test_the_network_is_all_interfaces_but_the_loopback(machine):
    rows = ["Inter-|   Receive", " face |bytes", "    lo: 99 0 0 0 0 0 0 0 99 0 0 0 0 0 0 0"]
    rows += [f"  eth{card}:{100 + card} 0 0 0 0 0 0 0 {10 + card} 0 0 0 0 0 0 0" for card in (0, 1)]
    machine.write("proc/net/dev", "\n".join(rows) + "\n")
    values = told(machine.reader())
    assert (201.0, 21.0) == (values["network_received_bytes"], values["network_sent_bytes"])


def test_swap_is_told_as_a_level_and_as_a_total(machine):
    machine.write("proc/meminfo", "MemTotal: 10 kB\nSwapTotal:     100 kB\nSwapFree:       30 kB\n")
    machine.write("proc/vmstat", "nr_free_pages 1\npswpin 3\npswpout 2\n")
    values = told(machine.reader())
    assert (70.0 * KIB, 5.0 * 4096) == (values["swap_used_bytes"], values["swapped_bytes"])


def test_a_kernel_that_tells_nothing_leaves_reasons_only(tmp_path):
    places = Places(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    samples = HostReader(list, places=places, cores=lambda: (0,)).sample()
    assert [] == [sample.name for sample in samples if sample.value is not None or not sample.reason]
    assert {"cpu_share", "rss_bytes", "cpu_energy_j", "disk_read_bytes", "network_sent_bytes", "swapped_bytes"} <= {sample.name for sample in samples}


def test_this_machine_can_be_read():
    samples = HostReader(lambda: [os.getpid()]).sample()
    values = {sample.name: sample.value for sample in samples}
    assert values["rss_bytes"] > 0
    assert {"host"} == {sample.device for sample in samples}
    assert 1 == len({sample.t_ns for sample in samples})
