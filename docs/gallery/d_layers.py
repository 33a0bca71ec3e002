"""
Layer by layer
==============

The diagonal block of one layer is the Hessian with all other layers held fixed. A glob over parameter names selects it.
"""

from mine import risk

import ritz

risk = risk()
spectra = {}
for name, layer in {"first layer": "0.*", "last layer": "2.*"}.items():
    H = ritz.hessian(risk.restricted_to(layer))
    top = ritz.eigenpairs(H, 1)
    print(f"{name}: {H.size} parameters, largest eigenvalue {float(top.values[0]):.4f}")
    spectra[name] = ritz.spectral_density(H, num_steps=48, num_probes=8, outliers=5)

figure, (ax,) = ritz.plot.panels(width=5)
ritz.plot.comparison(ax, spectra, log=True)
figure
