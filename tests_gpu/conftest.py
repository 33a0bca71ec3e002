import pytest
import torch

from tests_gpu.devices import CPU, DEVICE


def pytest_collection_modifyitems(items):
    for item in items:  # a note of PyTorch's own threads, which says nothing of the numbers
        item.add_marker(pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS"))
    if DEVICE.type == "cuda" and not torch.cuda.is_available():
        for item in items:
            item.add_marker(pytest.mark.skip(reason="There is no CUDA device; RITZ_TEST_DEVICE=cpu rehearses."))


@pytest.fixture(params=["device", "cpu"], ids=["data on the device", "data on the CPU"])
def place(request):
    """Where the data lie."""
    return DEVICE if request.param == "device" else CPU
