"""Hundreds of small networks at once: trained and measured together, each as if it were alone.

networks = ensemble.Ensemble.of(models, device="cuda")
for pause in ensemble.train(networks, loss, data, learning_rate=1e-2, num_epochs=500):
    pass
top = ensemble.sharpness(networks, loss, data)
ensemble.pearson(top.values[:, 0], ensemble.norms(networks.matrices[0]).spectral ** 2)
"""

from ...arguments import guard
from .curvature import Top, Traces, hessians, sharpness, spectra, trace
from .networks import Ensemble, LinearNetwork, linear, losses
from .training import train
from .weights import Alignments, Norms, alignments, norms, pearson

__all__ = [
    "Ensemble", "linear", "LinearNetwork", "train", "losses",
    "sharpness", "Top", "spectra", "hessians", "trace", "Traces",
    "norms", "Norms", "alignments", "Alignments", "pearson",
]  # fmt: skip

guard(__name__)
