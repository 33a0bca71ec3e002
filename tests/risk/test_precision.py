"""How PyTorch computes inside of the engine, whatever the user has set."""

import itertools
import signal
import sys
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import ritz
from ritz import Risk
from ritz.errors import ModelError, PrecisionWarning
from ritz.risk.precision import Numerics
from ritz.risk.undo import LOCK
from tests.risk.problem import CE, check_refusal, network
from tests.risk.unchanged import everything, nothing_changes, settings_of_pytorch
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


def test_threads_compute_what_one_computes_and_settings_are_as_before(x, y):
    """Two threads in different precisions, while a third looks at what is set between their turns."""
    models = {"highest": network().float(), "high": network(4).float()}
    risks = {p: Risk(model, CE, (x, y), tangent_precision=p) for p, model in models.items()}
    operators = {p: ritz.hessian(risk) for p, risk in risks.items()}
    v = {p: torch.ones(risk.size) for p, risk in risks.items()}
    expected = {p: (risk.gradient(), operators[p] @ v[p]) for p, risk in risks.items()}
    before, wrong, done = settings_of_pytorch(), [], threading.Event()

    def work(precision):
        for _ in range(40):
            numbers = risks[precision].gradient(), operators[precision] @ v[precision]
            wrong.extend(n for n, e in zip(numbers, expected[precision], strict=True) if not torch.equal(n, e))

    def watch():
        while not done.is_set():
            with LOCK:  # nobody is at work
                if settings_of_pytorch() != before:
                    wrong.append("settings")

    threads = [threading.Thread(target=work, args=(precision,)) for precision in risks]
    watcher = threading.Thread(target=watch)
    for thread in (watcher, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    watcher.join()
    assert not wrong and settings_of_pytorch() == before


def test_an_interrupt_anywhere_leaves_the_settings_as_they_were(x, y):
    """Ctrl-C at every line in turn of what sets, computes and restores."""
    risk = Risk(network(), CE, (x, y))
    before = settings_of_pytorch()
    for line in itertools.count(1):
        interrupted = interrupt_at(line, lambda: numerics_of(risk))
        assert settings_of_pytorch() == before, line
        assert free(LOCK), line
        if not interrupted:
            break
    assert line > 30


def numerics_of(risk):
    with risk.numerics("high"):
        torch.ones(2).sum()


def interrupt_at(count, function):
    """Whether a function still ran when that many lines of ours had been, at which Ctrl-C is simulated."""
    lines = itertools.count(1)

    def trace(frame, event, argument):
        code = frame.f_code  # what is raised in __del__ is printed, not raised
        inside = code.co_filename.endswith(("risk/precision.py", "risk/undo.py")) and code.co_name != "__del__"
        if event == "line" and next(lines) == count:
            raise KeyboardInterrupt
        return trace if inside else None

    old = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(old)
    return False


def free(lock):
    """Whether another thread can take it."""
    results = []
    thread = threading.Thread(target=lambda: results.append(lock.acquire(blocking=False) and (lock.release() or True)))
    thread.start()
    thread.join()
    return bool(results[0])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # one that struck in a __del__
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
def test_ctrl_c_at_random_moments_leaves_the_settings_as_they_were(x, y):
    risk = Risk(network(), CE, (x, y))
    before, struck, armed = settings_of_pytorch(), 0, False

    def strike(number, frame):
        if armed:
            raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, strike)
    try:
        for number in range(50):
            armed = True
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.0001 * number, 0.05)
                while True:
                    risk.gradient()
            except KeyboardInterrupt:
                armed, struck = False, struck + 1
            assert settings_of_pytorch() == before and free(LOCK)
        assert struck == 50
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def test_cudnn_searches_only_where_results_may_vary(monkeypatch):
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark
    with Numerics(torch.device("cuda"), "highest", recurrent=False, search=True):
        assert cudnn.benchmark
    monkeypatch.setattr(cudnn, "deterministic", True)
    with Numerics(torch.device("cuda"), "highest", recurrent=False, search=True):
        assert not cudnn.benchmark
    assert cudnn.benchmark == before


class Rounding(nn.Module):
    """A network whose norm is computed in another precision."""

    def __init__(self, dtype):
        super().__init__()
        self.inner, self.within = network(), dtype

    def forward(self, x):
        h = self.inner(x)
        return h / h.to(self.within).square().mean(1, keepdim=True).sqrt().to(h.dtype)


def test_a_model_that_computes_in_less_precision_inside_is_said_to(x, y):
    with pytest.warns(PrecisionWarning, match=r"computes in torch.float32 inside \(first in to\)"):
        risk = Risk(Rounding(torch.float32), CE, (x, y))
    assert risk.lowest_precision == risk.restricted_to("*bias").lowest_precision == torch.float32
    single = risk.to(torch.float32)
    assert single.lowest_precision == single.dtype == torch.float32
    with pytest.warns(PrecisionWarning, match="computes in torch.float32"):
        assert single.to(torch.float64).lowest_precision == torch.float32


def test_a_loss_that_computes_in_less_precision_inside_is_said_to(x, y):
    loss = lambda z, t: F.cross_entropy(z.float(), t, reduction="none") * (t >= 0).float()
    with pytest.warns(PrecisionWarning, match=r"The loss computes in torch.float32 inside \(first in float\)"):
        risk = Risk(network(), loss, unequal_batches(x, y))
    assert_close(risk.gradient(), Risk(network(), CE, (x, y)).gradient(), rtol=1e-5, atol=1e-7)


def test_a_loss_that_computes_in_its_precision_is_not(x, y, recwarn):
    Risk(network(), lambda z, t: F.cross_entropy(z, t, reduction="none") * (t >= 0).float(), unequal_batches(x, y))
    Risk(network().float(), lambda z, t: F.cross_entropy(z.double(), t, reduction="none"), unequal_batches(x, y))
    assert not recwarn.list


def test_a_model_that_computes_in_its_precision_is_not(x, y):
    assert Risk(Rounding(torch.float64), CE, (x, y)).lowest_precision == torch.float64


class ToFloat(nn.Module):
    """An image made of its bytes, in float32 whatever the weights are."""

    def forward(self, x):
        return x.float() / 44


def test_a_model_with_a_precision_of_its_own_is_told_from_bad_inputs():
    model = nn.Sequential(ToFloat(), nn.Linear(4, 3))
    risk = Risk(model, CE, (torch.arange(44).reshape(11, 4), torch.arange(11) % 3))
    message = r"In torch.float64, to which the risk was converted: The model failed[\s\S]*dtype=torch.float32"
    with pytest.raises(ModelError, match=message) as caught:
        ritz.gram_spectrum(risk)
    check_refusal(caught, ModelError)
    trace = float(ritz.gauss_newton(risk).dense().trace())
    spectrum = ritz.gram_spectrum(risk, dtype=torch.float32)  # the way out that is said
    assert spectrum.moment(1) * risk.size == pytest.approx(trace, rel=1e-4)
