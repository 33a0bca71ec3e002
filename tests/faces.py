"""The folders whose names are documented one by one, and what a module offers."""

FACES = (
    "", "theory", "theory.laws", "classes", "solvers", "plot", "factored", "analysis.spectrum", "analysis.classes",
    "lab.data", "lab.models", "lab.ensemble", "lab.training", "lab.init", "lab.sweeps", "lab.workers",
)  # fmt: skip


def public(module):
    """What a module offers: its `__all__`, or else what is defined in it, private names left out."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    names = getattr(module, "__all__", [name for name in own if not name.startswith("_")])
    return {name: getattr(module, name) for name in names}
