"""Fig. 6: spectra of a GPT with sinks."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ritz.errors import ArgumentError, FileError
from ritz.papers.frame.figure import Context
from ritz.papers.singh2026 import gpt_sinks
from ritz.papers.singh2026.paper import BEYOND
from ritz.spectrum import Spectrum

from .records import FIGURES, sinking

CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore::ritz.errors.ConvergenceWarning")


def test_gpt2_is_not_given_characters():
    figure = FIGURES["singh2026.fig6"]
    with pytest.raises(ArgumentError, match="characters"):
        figure.run(replace(figure.presets["laptop"], weights="model.safetensors"), Context())


def test_gpt2_is_not_given_tokens_that_only_a_rounded_vocabulary_has(tmp_path):
    (tmp_path / "model.safetensors").touch()
    np.full(2000, 50_300, dtype=np.uint16).tofile(tmp_path / "tokens.bin")
    config = gpt_sinks.Config(tokens=str(tmp_path / "tokens.bin"), weights=str(tmp_path / "model.safetensors"))
    with pytest.raises(FileError, match="from 0 to 50256"):
        gpt_sinks.run(config, Context())


def test_the_weights_of_gpt2_are_asked_for_before_the_work(tmp_path):
    np.arange(2000, dtype=np.uint16).tofile(tmp_path / "tokens.bin")
    config = gpt_sinks.Config(tokens=str(tmp_path / "tokens.bin"))
    with pytest.raises(ArgumentError, match="--set weights="):
        gpt_sinks.run(config, Context())
    with pytest.raises(FileError, match="is not a file"):
        gpt_sinks.run(replace(config, weights="nowhere.safetensors"), Context())


def test_a_model_that_was_measured_leaves_no_checkpoint(tmp_path):
    config = replace(gpt_sinks.FIGURES["singh2026.fig6"].presets["smoke"], num_steps=2, targets=(), num_products=2)
    found = gpt_sinks.sink_spectra(gpt_sinks.SinkRun(config, 0), device=CPU, data_dir=None, folder=tmp_path)
    assert not list(tmp_path.iterdir())
    size, atoms = found["num_parameters"], np.isin(found["nodes"][0, 0], found["top"][0])
    assert np.allclose(found["weights"][0, 0][atoms], 1 / size) and atoms.sum() == 2  # counted, not seen by chance


def test_spectra_of_different_numbers_of_atoms_stand_beside_each_other(monkeypatch):
    counts = iter([4, 3])

    def fewer(H, **options):
        count = next(counts)
        nodes = torch.arange(float(count), dtype=torch.float64)[None]
        return Spectrum(nodes, torch.full_like(nodes, 1 / count), H.size)

    monkeypatch.setattr(gpt_sinks, "spectral_density", fewer)
    config = replace(gpt_sinks.FIGURES["singh2026.fig6"].presets["smoke"], num_steps=1, targets=(0.5,), num_products=4)
    found = gpt_sinks.sink_spectra(gpt_sinks.SinkRun(config, 0), device=CPU, data_dir=None, folder=None)
    assert np.allclose(found["weights"].sum(-1), 1)
    assert (found["weights"] > 0).sum(-1).ravel().tolist() == [4, 3]


def test_a_seed_in_which_sinks_shrink_the_sharpness_is_not_hidden_by_another():
    without, with_sink = [4, 3, -1, -0.5], [8, 6, -2, -1]
    claims = FIGURES["singh2026.fig6"].claims(sinking([[without, with_sink], [with_sink, without]], 0.99))
    assert [claim.verdict for claim in claims[:3]] == ["partly"] * 3
    assert all("seed 1, sink 0.81" in claim.why and "seed 0" not in claim.why for claim in claims[:3])


def test_residuals_of_both_ends_of_a_spectrum_are_told_by_its_largest_eigenvalue():
    ends = [[[4, 3, -1, -0.5], [8, 6, -2, -1]]]
    record = sinking([*ends, *ends], 0.99)
    record.arrays["top_residuals"][1, 1, 3] = 0.04
    found = FIGURES["singh2026.fig6"].claims(record)[-1]
    assert found.measured == {"seed 0": 0, "seed 1": pytest.approx(0.005)} and found.paper == BEYOND
    assert found.verdict == "partly" and "seed 1" in found.why
