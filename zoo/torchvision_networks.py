"""Networks of torchvision, with fewer and narrower layers."""

from __future__ import annotations

from functools import partial

from torch import nn
from torchvision.models import (
    alexnet,
    convnext,
    densenet,
    efficientnet,
    googlenet,
    maxvit,
    mnasnet,
    mobilenetv2,
    mobilenetv3,
    regnet,
    resnet,
    shufflenetv2,
    squeezenet,
    swin_transformer,
    vgg,
    vision_transformer,
)

from .network import Network, images


def _vgg(batch_norm: bool) -> nn.Module:
    features = vgg.make_layers([8, "M", 16, "M", 16, 16, "M", 16, 16, "M"], batch_norm)
    model = vgg.VGG(nn.Identity(), num_classes=10, init_weights=False)
    model.features, model.avgpool = features, nn.AdaptiveAvgPool2d(2)
    model.classifier = nn.Sequential(nn.Linear(64, 32), nn.ReLU(True), nn.Dropout(), nn.Linear(32, 10))
    return model


def _alexnet() -> nn.Module:
    model = alexnet(num_classes=10)
    model.classifier = nn.Sequential(nn.Dropout(), nn.Linear(256 * 36, 16), nn.ReLU(inplace=True), nn.Linear(16, 10))
    return model


def _mobilenet_v3() -> nn.Module:
    settings, _ = mobilenetv3._mobilenet_v3_conf("mobilenet_v3_small", width_mult=0.25, reduced_tail=True)
    return mobilenetv3.MobileNetV3(settings, 64, num_classes=10)


def _efficientnet() -> nn.Module:
    block = partial(efficientnet.MBConvConfig, width_mult=0.25, depth_mult=0.5)
    settings = [block(1, 3, 1, 32, 16, 1), block(6, 3, 2, 16, 24, 2), block(6, 5, 2, 24, 40, 2)]
    return efficientnet.EfficientNet(settings, dropout=0.2, num_classes=10)


def _efficientnet_v2() -> nn.Module:
    fused, block = efficientnet.FusedMBConvConfig, efficientnet.MBConvConfig
    settings = [fused(1, 3, 1, 8, 8, 1), fused(4, 3, 2, 8, 16, 1), block(4, 3, 2, 16, 24, 1)]
    return efficientnet.EfficientNet(settings, dropout=0.2, num_classes=10, last_channel=64)


def _regnet(squeeze: float | None) -> nn.Module:
    settings = regnet.BlockParams.from_init_params(depth=4, w_0=16, w_a=8.0, w_m=2.0, group_width=8, se_ratio=squeeze)
    return regnet.RegNet(settings, num_classes=10, stem_width=8)


def _convnext() -> nn.Module:
    settings = [
        convnext.CNBlockConfig(16, 32, 1),
        convnext.CNBlockConfig(32, 48, 1),
        convnext.CNBlockConfig(48, None, 1),
    ]
    return convnext.ConvNeXt(settings, num_classes=10)


def _swin(**options: object) -> nn.Module:
    sizes = {"patch_size": [2, 2], "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 2], "window_size": [4, 4]}
    return swin_transformer.SwinTransformer(**sizes, num_classes=10, **options)


def _vit() -> nn.Module:
    sizes = {"image_size": 32, "patch_size": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 32, "mlp_dim": 64}
    return vision_transformer.VisionTransformer(**sizes, num_classes=10)


def _maxvit() -> nn.Module:
    return maxvit.MaxVit(
        (32, 32), stem_channels=8, partition_size=2, block_channels=[8, 16], block_layers=[1, 1], head_dim=4,
        stochastic_depth_prob=0.0, num_classes=10,
    )  # fmt: skip


def _resnet(block: type, **options: int) -> nn.Module:
    return resnet.ResNet(block, [1, 1, 1, 1], num_classes=10, **options)


_RESIDUALS = [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 2, 2]]  # t, c, n, s as in the paper

NETWORKS = [
    Network("resnet18, one block a stage", partial(_resnet, resnet.BasicBlock), images(32)),
    Network("resnet50, one block a stage", partial(_resnet, resnet.Bottleneck, width_per_group=8), images(32)),
    Network("vgg11", partial(_vgg, False), images(32)),
    Network("vgg11_bn", partial(_vgg, True), images(32)),
    Network("alexnet", _alexnet, images(64)),
    Network("squeezenet1_1", partial(squeezenet.squeezenet1_1, num_classes=10), images(32)),
    Network("densenet", partial(densenet.DenseNet, 8, (2, 2, 2, 2), 16, num_classes=10), images(32)),
    Network("googlenet", partial(googlenet, num_classes=10, aux_logits=False, init_weights=False), images(32)),
    Network("mobilenet_v2", partial(mobilenetv2.MobileNetV2, 10, 0.25, _RESIDUALS), images(32)),
    Network("mobilenet_v3_small", _mobilenet_v3, images(32), oracle="central differences"),
    Network("mnasnet", partial(mnasnet.MNASNet, 0.1, num_classes=10), images(32)),
    Network("shufflenet_v2", partial(shufflenetv2.ShuffleNetV2, [2, 2, 2], [8, 16, 32, 64, 64], 10), images(32)),
    Network("efficientnet_b0", _efficientnet, images(32)),
    Network("efficientnet_v2_s", _efficientnet_v2, images(32)),
    Network("regnet_x", partial(_regnet, None), images(32)),
    Network("regnet_y", partial(_regnet, 0.25), images(32)),
    Network("convnext", _convnext, images(32)),
    Network("swin_t", _swin, images(32)),
    Network("swin_v2_t", partial(_swin, block=swin_transformer.SwinTransformerBlockV2,
                                 downsample_layer=swin_transformer.PatchMergingV2), images(32)),
    Network("vit_b_16", _vit, images(32)),
    Network("maxvit_t", _maxvit, images(32)),
]  # fmt: skip
