"""Traces of class/cross-class structure pervade deep learning spectra (Papyan 2020), its figures.

What these are made of:

    paper     the names under which statements stand
    setting   data sets, networks, and how they are trained
    networks  trained networks by piece, and the shelf on which they are kept
    spectra   one spectrum of one curvature matrix of one trained network

The figures of papyan2019 share these, and most computations.
"""
