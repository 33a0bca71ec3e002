"""Traces of class/cross-class structure pervade deep learning spectra (Papyan 2020), its figures.

    pattern            Fig. 1         the typical spectrum, and whose its eigenvalues are
    inheritance        Fig. 2         how class means of features and errors become outliers of G and H
    hessians           Fig. 3, 14     train and test Hessian, with and without deflation
    components         Fig. 4         H beside its summands G and E
    knockouts          Fig. 5         the log spectrum of G without each of its parts
    gradient_dynamics  Fig. 6         the log spectrum of G along training, by sample size
    layer_figures      Fig. 7-10, 13  features, errors and weights by layer, without their class means
    kronecker          Fig. 11, 12    G, KFAC and CFAC by layer
    attributions       Table 1        what outliers, mini-bulk and bulk are attributed to
    synthetic          Fig. 15        two random matrices: Lanczos against histograms
    tail               Fig. 16        the power law in the tails of E
    deflation          Fig. 17        what deflation shows
    logistic           Sec. 8         logistic regression on the canonical classification model
    batch_norm         Sec. 9.3       what batch normalisation does to outliers

What these are made of:

    paper             the names under which statements stand
    setting           data sets, networks, and how they are trained
    networks          trained networks by piece, and the shelf on which they are kept
    spectra           one spectrum of one curvature matrix of one trained network: Fig. 3, 4, 14, 16, 17
    pictures          how such spectra are drawn
    gradients         the spectrum of G of one trained network by class: Fig. 1, 5, 6, Table 1
    hessian_numbers   measures of train and test Hessians: Fig. 3, 14, 17
    knockout_numbers  measures of G and its knockouts: Fig. 1, 5
    tail_numbers      measures of the tails of E: Fig. 16
    dynamics_numbers  measures by epochs and sample sizes: Fig. 6
    layer_structure   features, errors and weights of the layers of one MLP: Fig. 7-10, 13
    layer_blocks      the blocks of G of the layers of one MLP, KFAC and CFAC: Fig. 11, 12
    layers            both for all MLPs: Fig. 7-13, Table 1
    layer_results     reading a record of these
    layer_numbers     measures by layer
    layer_statements  what the paper says of all layers: Fig. 7-10, 13
    panel_statements  what it says of single panels: Fig. 7-10, 13

The figures of papyan2019 share these, and most computations.
"""
