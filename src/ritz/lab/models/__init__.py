"""The networks of the papers, as plain modules whose weights come from a generator."""

from ...arguments import guard
from .attention import SelfAttention, self_attention
from .build import parameter_count
from .convolutional import ResidualBlock, resnet18, resnet20, vgg11
from .fully_connected import (
    Activation,
    BiasNetwork,
    ScalarNetwork,
    Scaled,
    bias_network,
    linear_network,
    mlp,
    scalar_network,
    wide_mlp,
)
from .pretrained import gpt2, gpt2_state
from .transformers import (
    GPT,
    GPT2,
    SMALL,
    GPTConfig,
    attention_on_first_token,
    gpt,
    set_sink,
    sink_bias,
    without_attention,
)

__all__ = [
    # fully connected
    "Activation", "Scaled", "linear_network", "mlp", "wide_mlp",
    # with closed forms: Singh et al. (2026)
    "BiasNetwork", "ScalarNetwork", "SelfAttention", "bias_network", "scalar_network", "self_attention",
    # convolutional: Papyan (2020), He et al. (2016)
    "ResidualBlock", "resnet18", "resnet20", "vgg11",
    # transformers: Singh et al. (2026), App. D.1.5 and D.1.6
    "GPT", "GPT2", "GPTConfig", "SMALL", "attention_on_first_token", "gpt", "gpt2", "gpt2_state", "set_sink",
    "sink_bias", "without_attention",
    # of any model
    "parameter_count",
]  # fmt: skip

guard(__name__)
