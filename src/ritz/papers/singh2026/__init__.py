"""Cracking the Hessian: closed-form Hessian spectra for fundamental neural networks (Singh et al. 2026), its figures.

    theorems         -                   theorems that no figure shows, as printed
    relu             Fig. 1              the spectrum of a ReLU network by its cells
    evolution        Fig. 8              the pair of outliers along training
    scale            Fig. 7              the spectrum against the variance of the inputs
    pairs            Fig. 3, 10-13       two eigenvalues that sum up to tr H / D
    correlations     Fig. 4, 14-16, 26   sharpness and trace against norms and alignments of two layers
    deep             Fig. 17-22          sharpness against norms of weights and of their products in deep networks
    attention        Fig. 2              self-attention: norms
    attention_sinks  Fig. 9              self-attention: sinks
    attention_edge   Fig. 27             self-attention: progressive sharpening and the edge of stability
    gpt              Fig. 5, 23-25       transformers with and without attention
    gpt_sinks        Fig. 6              transformers: sinks

What these are made of:

    paper                   the names under which statements stand
    trained_networks        networks in three parametrisations, before and after training: Fig. 4, 14-22, 26
    network_readings        how D.1.3 and D.1.4 can be read: Fig. 4, 14-22, 26
    correlation_statements  what the paper says of two layers: Fig. 4, 14-16, 26
    two_layer_coefficients  correlation coefficients of two-layer networks, compared: Fig. 4, 14-16, 26
    attention_statements    what the paper says of one head: Fig. 2
    attention_descent       heads of self-attention under gradient descent: Fig. 27
    edge_of_stability       one training run in numbers, on its way to the edge and there: Fig. 27
    edge_by_reading         those numbers for each reading of the paper: Fig. 27
    gpt_sharpness           the sharpness of a GPT and of its twin along training, by H and by G: Fig. 5, 23-25
    pretraining             token streams, a GPT, its twin without attention, and their training: Fig. 5, 6, 23-25
"""
