"""The full spectrum of deepnet Hessians at scale: dynamics with training and sample size (Papyan 2019), its figures.

    reprinted  Fig. 1-5, 7-9  what papyan2020 prints again, by its computations
    dynamics   Fig. 6, 10     H, G and E, and errors, along training

It writes H for our E, and Hess for our H. `paper` has the name under which statements stand.
"""
