"""Cracking the Hessian: closed-form Hessian spectra for fundamental neural networks (Singh et al. 2026), its figures.

    relu          Fig. 1              the spectrum of a ReLU network by its cells
    evolution     Fig. 8              the pair of outliers along training
    scale         Fig. 7              the spectrum against the variance of the inputs
    pairs         Fig. 3, 10-13       two eigenvalues that sum up to tr H / D
    correlations  Fig. 4, 14-16, 26   sharpness and trace against norms and alignments of two layers
    deep          Fig. 17-22          sharpness against norms of weights and of their products in deep networks
    attention     Fig. 2, 9           self-attention: norms and sinks
    stability     Fig. 27             self-attention: progressive sharpening and the edge of stability
    gpt           Fig. 5, 6, 23-25    transformers

What several of them need: `regression` has networks in three parametrisations, trained and measured, and `ranges` the
exact spectra of large Hessians.
"""

PAPER = "singh2026"
BEYOND = "beyond singh2026"  # claims of this project about the same figure
