"""How the Hessian-spectrum of linear networks depends on data (2026): its four figures, panel by panel.

Fig. 1a and 1b are in `closed_form`, 1c and the ablations 2a, 2b, 2c in `imbalance`, 3 and 4 in `along_training`.
Networks that are trained share a `setting`; what print leaves open about those of Fig. 1c and 2 is in `variants`, how
they are trained in `training`. What the paper says stands in tables beside the figures, that of Fig. 1c in
`balanced_statements` and that of Fig. 2 in `ablation_statements`.
"""
