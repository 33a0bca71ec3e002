"""The full spectrum of deepnet Hessians at scale: dynamics with training and sample size (Papyan 2019), its figures.

It writes H for our E, and Hess for our H. It shares the computations of papyan2020, and therefore imports it.
"""
