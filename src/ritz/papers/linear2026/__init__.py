"""How the Hessian-spectrum of linear networks depends on data (2026): its four figures, panel by panel.

Fig. 1a and 1b are in `closed_form`, 1c and the ablations 2a, 2b, 2c in `imbalance`, 3 and 4 in `along_training`.
Networks that are trained share a `setting`.
"""

from functools import partial

from ..frame import claims

PAPER = "linear2026"
BEYOND = "ritz.theory, beyond linear2026"  # claims of this project about the same figure
claim = partial(claims.claim, paper=PAPER)
says = partial(claims.Statement, paper=PAPER)
