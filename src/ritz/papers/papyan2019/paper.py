"""The name under which the statements about the figures stand, and what this paper prints of its settings."""

from functools import partial

from ..frame.statements import Statement

PAPER = "papyan2019"
says = partial(Statement, paper=PAPER)


def printed(where: str = "network", *, steps: str = "", **caption: str) -> dict[str, str]:
    """The sources of fields for which 2020 has other words: of the network, which stands there, and of Lanczos.

    `caption` has what a figure's own prints of fields of the network, and `steps` why it takes other Lanczos steps.
    """
    general = {
        "network": "VGG11 … and ResNet18",
        "training.rates": "100 logarithmically spaced initial learning rates",
    }
    epochs = {f"{where}.training.num_epochs": '"200 epochs in the case of MNIST and FashionMNIST and 350": as printed'}
    no_mlp = {f"{where}.{name}": "open: of an MLP, of which this paper has none" for name in ("width", "depth")}
    quotes = {f"{where}.{name}": f'"{words}"' for name, words in (general | caption).items()}
    return quotes | epochs | no_mlp | {"method.num_steps": f'"M=128": {steps}'}
