"""Closed forms of Hessian spectra: weights and data in, named lines with eigenvectors out."""

from ..arguments import guard
from . import laws
from .aligned_layers import aligned_linear, balanced_linear, balanced_solution
from .assumptions import balanced_weights, balancedness, input_scale, whitened, whiteness
from .attention import (
    AttentionBounds,
    AttentionScalars,
    attention_bounds,
    attention_moments,
    attention_product,
    attention_scalars,
    self_attention,
)
from .closed_form import ClosedForm, Group, NoEigenvectorsError, shifted
from .comparison import Comparison, GroupError, compare
from .deep_linear import (
    linear_gauss_newton,
    linear_trace,
    shallow_linear,
    sharpness_bound,
    spectral_norm_bound,
    tangent_kernel,
)
from .layer_products import product_without, products_after, products_before
from .logistic_regression import Gaps, ccm_error_rate, ccm_gaps, logistic_ccm
from .outlier_pairs import bias_network, paired_outliers
from .scalar_networks import (
    Phase,
    SharpnessTerms,
    invariant_bulk,
    linear_network,
    phase,
    product_network,
    relu_network,
    sharpness_terms,
)
from .several_inputs import diagonal_network, multi_input_network, multi_output_network
from .single_output import Spectra, linear_spectra, relu_spectra
from .two_layer_compression import linear_pair, relu_pair, two_layer_linear, two_layer_relu

__all__ = [
    # what a closed form is
    "ClosedForm", "Comparison", "Group", "GroupError", "NoEigenvectorsError", "compare", "shifted",
    # two layers, scalar: Singh et al. (2026), Sec. 3.1 and 3.2
    "Phase", "SharpnessTerms", "invariant_bulk", "linear_network", "phase", "product_network", "relu_network",
    "sharpness_terms",
    # two layers, several inputs or outputs: Singh et al. (2026), App. B.3 and B.4
    "bias_network", "diagonal_network", "multi_input_network", "multi_output_network", "paired_outliers",
    # self-attention: Singh et al. (2026), Sec. 3.3
    "AttentionBounds", "AttentionScalars", "attention_bounds", "attention_moments", "attention_product",
    "attention_scalars", "self_attention",
    # two layers of any width, compressed
    "linear_pair", "relu_pair", "two_layer_linear", "two_layer_relu",
    # one output, in the range of H
    "Spectra", "linear_spectra", "relu_spectra",
    # deep linear networks: linear2026
    "aligned_linear", "balanced_linear", "balanced_solution", "balanced_weights", "balancedness", "input_scale",
    "linear_gauss_newton", "linear_trace", "product_without", "products_after", "products_before", "shallow_linear",
    "sharpness_bound", "spectral_norm_bound", "tangent_kernel", "whitened", "whiteness",
    # logistic regression on class means: Papyan (2020), Sec. 8
    "Gaps", "ccm_error_rate", "ccm_gaps", "logistic_ccm",
    # random matrices
    "laws",
]  # fmt: skip

guard(__name__)
