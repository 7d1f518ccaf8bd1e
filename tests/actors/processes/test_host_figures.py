"""This machine's figures agree with what the kernel says."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from ganger.actors.processes import host_figures

MIB = 1024 * 1024


def meminfo() -> dict[str, int]:
    """Sizes in MiB."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return {name.rstrip(":"): int(size) // 1024 for name, size, *_ in lines}


def test_the_figures_are_those_of_the_kernel(tmp_path: Path) -> None:
    found, kernel = host_figures.figures([str(tmp_path)]), meminfo()
    assert found["mtotal"] == kernel["MemTotal"]
    assert 0 < found["mfree"] < found["mtotal"]
    assert found["mtotal"] - found["mnode"] - found["mfree"] in {0, 1}
    processors = Path("/proc/cpuinfo").read_text().count("\nprocessor") + 1
    assert found["ctotal"] == found["cnos"] == processors
    assert 1 <= found["csockets"] <= processors
    assert found["cnodes"] >= 1
    assert found["bootid"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    disk = os.statvfs(tmp_path)
    assert found["dtotal"] == disk.f_blocks * disk.f_frsize // MIB
    assert 0 < found["dfree"] <= found["dtotal"]


def test_the_disk_is_that_of_the_first_folder_that_exists(tmp_path: Path) -> None:
    shown = host_figures.figures([str(tmp_path / "missing"), "/proc", str(tmp_path)])
    assert shown["dtotal"] == 0
    shown = host_figures.figures([str(tmp_path / "missing"), str(tmp_path)])
    assert shown["dtotal"] > 0
    assert "dtotal" not in host_figures.figures([str(tmp_path / "missing")])


def test_what_the_kernel_does_not_tell_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden() -> None:
        raise PermissionError

    monkeypatch.setattr(psutil, "virtual_memory", hidden)
    found = host_figures.figures(["/proc"])
    assert not {"mtotal", "mnode", "mfree"} & found.keys()
    assert found["ctotal"]
