"""The two plots of the poster of Singh and Hofmann (2024), "Closed form of the Hessian spectrum for some networks".

They share the computations of Fig. 1 and 8 of Singh et al. (2026), and therefore import `singh2026`.
"""
