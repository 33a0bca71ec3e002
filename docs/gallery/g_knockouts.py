"""
Knocking a part out
===================

Take one part out of G and look at what is left. If an outlier vanishes, it came from that part. "G - G_class" subtracts
a part; "G off G_class" projects its directions out.
"""

from mine import risk

import ritz

answer = ritz.attribution(risk().first(100), num_lines=12)
curves = {}
for name, spectrum in answer.spectra.items():
    curves[name] = spectrum.nodes.flatten().sort(descending=True).values[:300]

figure, (ax,) = ritz.plot.panels(width=6, height=3.2)
ritz.plot.screes(ax, curves, zero=1e-6)
ax.set_ylabel("eigenvalue λ")
ax.legend(frameon=False, fontsize="small")
figure

# %%

for name, values in curves.items():
    print(f"{name:20s} largest eigenvalue {float(values[0]):.3f}")
