"""How PyTorch computes inside of the engine, whatever the user has set."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import ritz
from ritz import Risk
from ritz.errors import ModelError
from tests.risk.problem import CE, check_refusal, network
from tests.risk.unchanged import everything, nothing_changes
from tests.zoo import unequal_batches


def test_under_no_grad_everything_is_the_same(x, y):
    risk = Risk(network(), nn.CrossEntropyLoss(), (x, y))
    v = torch.ones(risk.size, dtype=torch.float64)
    gradient, product = risk.gradient(), ritz.hessian(risk) @ v
    with torch.no_grad():
        again = Risk(network(), nn.CrossEntropyLoss(), (x, y))
        H = ritz.hessian(again)
        assert_close(again.gradient(), gradient)
        assert_close(H @ v, product)
        assert H.info.path != "forward" and not torch.is_grad_enabled()


def test_autocast_does_not_reach_the_engine(x, y):
    model = network().float()
    exact = Risk(model, nn.CrossEntropyLoss(), (x, y))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = Risk(model, nn.CrossEntropyLoss(), (x, y))
        assert inside.loss_value() == exact.loss_value()
        assert_close(inside.gradient(), exact.gradient())


@pytest.mark.parametrize("setting", ["legacy", "new", "deterministic"])
def test_precision_settings_are_put_back(setting, x, y):
    model = network().float()
    backends = torch.backends
    saved = [backends.cuda.matmul.fp32_precision, backends.mkldnn.matmul.fp32_precision]
    try:
        if setting == "legacy":
            torch.set_float32_matmul_precision("medium")
        elif setting == "new":
            backends.cuda.matmul.fp32_precision = "tf32"
        else:
            backends.cudnn.deterministic, backends.cudnn.benchmark = True, True
        with nothing_changes(model):
            everything(Risk(model, ritz.CrossEntropy(), (x, y), tangent_precision="high"))
    finally:
        torch.set_float32_matmul_precision("highest")
        backends.cuda.matmul.fp32_precision, backends.mkldnn.matmul.fp32_precision = saved
        backends.cudnn.deterministic, backends.cudnn.benchmark = False, False


@pytest.mark.parametrize("enabled", [True, False])
def test_the_fast_path_of_attention_is_put_back(enabled, x, y):
    mha, model = torch.backends.mha, network()
    before = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(enabled)
    try:
        with nothing_changes(model):
            everything(Risk(model, ritz.CrossEntropy(), unequal_batches(x, y)))
        assert mha.get_fastpath_enabled() == enabled
        with pytest.raises(ModelError, match="The model failed"):
            Risk(model, ritz.CrossEntropy(), (x[:, :2], y))
        assert mha.get_fastpath_enabled() == enabled
    finally:
        mha.set_fastpath_enabled(before)


def test_a_users_default_precision_does_not_matter(x, y):
    model = network().float()
    expected = Risk(model, nn.CrossEntropyLoss(), (x, y)).gradient()
    torch.set_default_dtype(torch.float64)
    try:
        risk = Risk(model, nn.CrossEntropyLoss(), (x, y))
        everything(risk)
        assert_close(risk.gradient(), expected)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_inference_mode_is_refused(x, y):
    with torch.inference_mode(), pytest.raises(ModelError, match="Inference mode") as caught:
        Risk(network(), CE, (x, y))
    check_refusal(caught, ModelError)


def test_the_loss_of_a_transformer_layer_is_that_of_the_function_that_is_differentiated():
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1).double().eval()

    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.head = encoder, nn.Linear(4, 3).double()

        def forward(self, x, mask):
            return self.head(self.encoder(x, src_key_padding_mask=mask).mean(1))

    x, mask = torch.randn(5, 6, 4, dtype=torch.float64), torch.zeros(5, 6, dtype=torch.bool)
    mask[:, 4:] = True
    model, y = Pooled(), torch.randint(3, (5,))
    risk = ritz.Risk(model, nn.CrossEntropyLoss(), ({"x": x, "mask": mask}, y))
    differentiated = F.cross_entropy(model(x, mask), y)  # with gradients, so without the fast path
    assert risk.loss_value() == pytest.approx(float(differentiated.detach()), rel=1e-12)
