"""`ritz demo` beside other work."""

import pytest
import torch

from ritz.cli import demo


def test_so_small_a_network_takes_one_thread_and_gives_the_others_back(monkeypatch, tmp_path):
    before, seen = torch.get_num_threads(), []

    def stop(*_, **__):
        seen.append(torch.get_num_threads())
        raise InterruptedError

    monkeypatch.setattr(demo, "classifier", stop)
    torch.set_num_threads(2)
    try:
        with pytest.raises(InterruptedError):
            demo.run(tmp_path)
        assert seen == [1] and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
