"""Networks of timm: its own small ones for tests, and others with fewer and narrower layers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import timm
from timm.models import byobnet, convmixer, metaformer, mlp_mixer, mobilenetv3
from torch import nn

from .network import Network, images


def _named(name: str, size: int = 32, oracle: Any = "double backward", **options: Any) -> Network:
    """A network by its name, with options of its own."""
    return Network(name, partial(timm.create_model, name, num_classes=10, **options), images(size), oracle=oracle)


def _built(name: str, build: Callable[..., nn.Module], *settings: Any, **options: Any) -> Network:
    """A network by its class, for those whose sizes are fixed by their names."""
    return Network(name, partial(build, *settings, num_classes=10, **options), images(32))


_SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2}
_MIXER = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "num_blocks": 2}
_GATED = {"block_layer": mlp_mixer.SpatialGatingBlock, "mlp_layer": timm.layers.GatedMlp, "mlp_ratio": 4}
_AFFINE = {"block_layer": mlp_mixer.ResBlock, "norm_layer": mlp_mixer.Affine, "mlp_ratio": 4}
_REPVGG = byobnet.ByoModelCfg(byobnet._rep_vgg_bcfg((1, 1, 1, 1), (0.125,) * 4), stem_type="rep", stem_chs=8)

NETWORKS = [
    _named("test_resnet"),
    _named("test_efficientnet"),
    _named("test_efficientnet_gn"),
    _named("test_convnext"),
    _named("test_byobnet"),
    _named("test_nfnet"),
    _named("test_mambaout"),
    _named("test_vit", img_size=32),
    _named("deit_tiny_distilled_patch16_224", **_SMALL),
    _named("beit_base_patch16_224", **_SMALL),
    _named("eva02_tiny_patch14_224", **_SMALL),
    _named("cait_xxs24_224", **_SMALL),
    _named("xcit_nano_12_p16_224", **_SMALL | {"patch_size": 16}),
    _built("mixer_s32_224", mlp_mixer.MlpMixer, **_MIXER),
    _built("gmlp_ti16_224", mlp_mixer.MlpMixer, **_MIXER, **_GATED),
    _built("resmlp_12_224", mlp_mixer.MlpMixer, **_MIXER, **_AFFINE),
    _named("levit_128s", 64, embed_dim=(16, 24, 32), key_dim=8, depth=(1, 1, 1), num_heads=(2, 2, 2), img_size=64),
    _named("resnetv2_50", layers=(1, 1, 1, 1), channels=(16, 16, 32, 32), stem_chs=8),
    _built("convmixer_768_32", convmixer.ConvMixer, 16, 2, kernel_size=3, patch_size=4),
    _built("poolformer_s12", metaformer.MetaFormer, depths=(1, 1, 1, 1), dims=(8, 16, 16, 16)),
    _named("pvt_v2_b0", depths=(1, 1, 1, 1), embed_dims=(8, 16, 16, 16), num_heads=(1, 2, 2, 2)),
    _named("edgenext_xx_small", dims=(8, 16, 16, 16), depths=(1, 1, 1, 1)),
    _named("ghostnet_050", oracle="central differences"),
    _built("mobilenetv4_conv_small", mobilenetv3._gen_mobilenet_v4, "mobilenetv4_conv_small", 0.125),
    _built("repvgg_a0", byobnet.ByobNet, _REPVGG),
]
