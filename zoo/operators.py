"""Two operators without which torchvision cannot be imported beside a PyTorch without CUDA."""

from __future__ import annotations

import torch

LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
for name in ("nms", "qnms"):
    if not hasattr(torch.ops.torchvision, name):
        LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
