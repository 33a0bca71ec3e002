"""Multi-head attention of PyTorch: its projections are linear layers, whatever order their rows have."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import ritz
from ritz.layers.capture import Layers
from ritz.risk import Risk


class Attention(nn.Module):
    def __init__(self, *, batch_first=True, need_weights=False, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=batch_first, **options)
        self.head, self.need_weights = nn.Linear(4, 3), need_weights

    def forward(self, x):  # (N, T, 4)
        rows = x if self.attention.batch_first else x.transpose(0, 1)
        y = self.attention(rows, rows, rows, need_weights=self.need_weights)[0]
        return self.head(y.mean(1 if self.attention.batch_first else 0))


class Twin(nn.Module):
    """The network with attention, written with linear layers."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.head = nn.Linear(4, 12), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (2, 2)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return self.head(self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)).mean(1))


class Crossed(nn.Module):
    """Queries from one place, keys and values from another: the packed weight is cut."""

    def __init__(self):
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.attention(x[:, :1], x, x)[0][:, 0])


def risk_of(model):
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.double().parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    x = torch.randn(9, 5, 4, generator=generator, dtype=torch.float64)
    y = torch.arange(9) % 3
    return Risk(model.eval(), nn.CrossEntropyLoss(), [(x[:7], y[:7]), (x[7:], y[7:])])


FORMS = [{}, {"batch_first": False}, {"need_weights": True}, {"batch_first": False, "need_weights": True}]


@pytest.mark.parametrize("form", FORMS)
def test_kfac_of_attention_is_that_of_its_linear_layers(form):
    ours, theirs = (ritz.kfac(risk_of(model)) for model in (Attention(**form), Twin()))
    assert list(ours.layers) == ["attention", "attention.out_proj", "head"]
    torch.testing.assert_close(ours.operator.dense(), theirs.operator.dense(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_gram_matrix_and_ekfac_of_attention_are_right(form):
    risk = risk_of(Attention(**form))
    assert not Layers.of(risk).others
    G = ritz.gauss_newton(risk).dense()
    spectrum = ritz.gram_spectrum(risk)
    assert float(spectrum.moment(1) * risk.size) == pytest.approx(float(G.trace()), rel=1e-10)
    assert float(ritz.ekfac(risk).operator.dense().trace()) == pytest.approx(float(G.trace()), rel=1e-10)


@pytest.mark.parametrize("model", [Crossed, lambda: Attention(add_bias_kv=True)])
def test_what_is_no_linear_layer_is_named_and_exact(model):
    risk = risk_of(model())
    others = Layers.of(risk).others
    assert others and all("attention" in name for name in others)
    with pytest.raises(ritz.errors.ModelError, match="attention"):
        ritz.kfac(risk)
    G = ritz.gauss_newton(risk).dense()
    assert float(ritz.gram_spectrum(risk).moment(1) * risk.size) == pytest.approx(float(G.trace()), rel=1e-10)


def test_an_encoder_with_time_first_is_served():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0), nn.Linear(4, 3)

        def forward(self, x):
            return self.head(self.layer(x.transpose(0, 1)).mean(0))

    risk = risk_of(Encoder())
    assert not Layers.of(risk).others
    G = ritz.gauss_newton(risk).dense()
    assert float(ritz.gram_spectrum(risk).moment(1) * risk.size) == pytest.approx(float(G.trace()), rel=1e-10)
