"""The weights of a small GPT-2, by the names under which they are published."""

from ritz.lab import models
from tests.seeds import normal

TINY = models.GPTConfig(vocabulary=7, context=6, depth=2, width=8, num_heads=2)


def published_names(config):
    """The names and shapes of a GPT-2 of `transformers`, whose linear layers are in × out."""
    w, shapes = config.width, {}
    shapes |= {"transformer.wte.weight": (config.vocabulary, w), "transformer.wpe.weight": (config.context, w)}
    for i in range(config.depth):
        h = f"transformer.h.{i}"
        shapes |= {f"{h}.{norm}.{kind}": (w,) for norm in ("ln_1", "ln_2") for kind in ("weight", "bias")}
        linear = {"attn.c_attn": (w, 3 * w), "attn.c_proj": (w, w), "mlp.c_fc": (w, 4 * w), "mlp.c_proj": (4 * w, w)}
        for name, shape in linear.items():
            shapes |= {f"{h}.{name}.weight": shape, f"{h}.{name}.bias": shape[1:]}
        shapes |= {f"{h}.attn.bias": (1, 1, config.context, config.context), f"{h}.attn.masked_bias": ()}
    shapes |= {"transformer.ln_f.weight": (w,), "transformer.ln_f.bias": (w,)}
    return shapes | {"lm_head.weight": (config.vocabulary, w)}


def published(config):
    state = {name: normal(*shape, seed=seed) for seed, (name, shape) in enumerate(published_names(config).items())}
    return state | {"lm_head.weight": state["transformer.wte.weight"]}
