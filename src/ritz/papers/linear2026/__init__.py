"""How the Hessian-spectrum of linear networks depends on data (2026): its four figures, panel by panel.

Fig. 1a and 1b are in `closed_form`, 1c and the ablations 2a, 2b, 2c in `imbalance`, 3 and 4 in `along_training`.
All trained networks share a `setting`; `variants` has what the paper leaves open about Fig. 1c and 2, `training` how
their networks are trained. The tables of statements are beside the figures: `balanced_statements` for Fig. 1c,
`ablation_statements` for Fig. 2, `along_statements` for Fig. 3 and 4.
"""
