"""Cracking the Hessian: closed-form Hessian spectra for fundamental neural networks (Singh et al. 2026), its figures.

    relu             Fig. 1              the spectrum of a ReLU network by its cells
    evolution        Fig. 8              the pair of outliers along training
    scale            Fig. 7              the spectrum against the variance of the inputs
    pairs            Fig. 3, 10-13       two eigenvalues that sum up to tr H / D
    correlations     Fig. 4, 14-16, 26   sharpness and trace against norms and alignments of two layers
    deep             Fig. 17-22          sharpness against norms of weights and of their products in deep networks
    attention        Fig. 2              self-attention: norms
    attention_sinks  Fig. 9              self-attention: sinks
    stability        Fig. 27             self-attention: progressive sharpening and the edge of stability
    gpt              Fig. 5, 23-25       transformers with and without attention
    gpt_sinks        Fig. 6              transformers: sinks

What several of them need: `regression` has networks in three parametrisations, trained and measured, `ranges` the exact
spectra of large Hessians, `pretraining` token streams and schedules, `edge` what a run at the edge of stability shows,
`readings` how the paper's Fig. 27 can be read.
"""
