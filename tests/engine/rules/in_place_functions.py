"""The activations of PyTorch that overwrite their input, by name."""

import torch
from torch.nn import functional as F

FUNCTIONS = {
    "F.silu": lambda x: F.silu(x, inplace=True),
    "F.elu_": lambda x: F.elu_(x, 0.4),
    "F.celu_": lambda x: F.celu_(x, 0.5),  # PyTorch takes 1/α in float32 here, so that it must be a short number
    "F.selu_": F.selu_,
    "F.hardtanh_": lambda x: F.hardtanh_(x, -0.3, 0.5),
    "F.leaky_relu_": lambda x: F.leaky_relu_(x, 0.2),
    "torch.tanh_": torch.tanh_,
    "torch.sigmoid_": torch.sigmoid_,
    "torch.erf_": torch.erf_,
    "torch.sin_": torch.sin_,
    "torch.cos_": torch.cos_,
    "Tensor.tanh_": lambda x: x.tanh_(),
    "Tensor.sigmoid_": lambda x: x.sigmoid_(),
    "Tensor.erf_": lambda x: x.erf_(),
    "Tensor.sin_": lambda x: x.sin_(),
    "Tensor.cos_": lambda x: x.cos_(),
}
