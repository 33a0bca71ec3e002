"""How much memory is free: what a container may use, with what its page cache would give back."""

import pytest
import torch

from ritz.risk import memory

GB = 2**30
CPU = torch.device("cpu")


@pytest.fixture
def container(tmp_path, monkeypatch):
    """A control group with the given files, on a machine with 64 GB."""

    def write(version, limit, used, statistics):
        names = {"limit": limit, "used": used, "statistics": statistics}
        for name, text in names.items():
            if text is not None:
                (tmp_path / name).write_text(f"{text}\n")
        group = memory.GROUPS[version]._replace(**{name: str(tmp_path / name) for name in names})
        monkeypatch.setattr(memory, "GROUPS", (group,))
        monkeypatch.setattr(memory, "_available", lambda: 64.0 * GB)

    return write


@pytest.mark.parametrize("version, name", [(0, "inactive_file"), (1, "total_inactive_file")])
def test_the_page_cache_of_a_container_is_free(container, version, name):
    container(version, 8 * GB, 7 * GB, f"anon {GB}\ninactive_file_x 5\n{name} {5 * GB}\nactive_file {GB}")
    assert memory.free_memory(CPU) == 6 * GB


@pytest.mark.parametrize("statistics", [None, "", "anon 5", "inactive_file many", "inactive_file"])
def test_without_statistics_all_that_is_used_counts(container, statistics):
    container(0, 8 * GB, 7 * GB, statistics)
    assert memory.free_memory(CPU) == GB


def test_a_group_without_a_limit_leaves_what_the_machine_has(container):
    container(0, "max", 7 * GB, f"inactive_file {GB}")
    assert memory.free_memory(CPU) == 64 * GB


def test_what_is_used_beyond_the_limit_leaves_nothing(container):
    container(0, 8 * GB, 9 * GB, "inactive_file 0")
    assert memory.free_memory(CPU) == 0
