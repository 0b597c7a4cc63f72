"""One row per symbol: its name in code, its LaTeX, what it means and where the paper defines it.

Documentation, tables and pages read this list; nothing else spells a symbol's LaTeX or meaning.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedgauge.base.errors import InputError, nearest


@dataclass(frozen=True)
class Symbol:
    """A symbol of the paper.

    Attributes:
        name: name in code, in JSON and on the command line.
        latex: LaTeX of the symbol.
        meaning: one phrase that fits a table cell.
        defined: where the paper defines the symbol, or "fedgauge" if fedgauge does.
    """

    name: str
    latex: str
    meaning: str
    defined: str


_ROWS = (
    Symbol("N", r"N", "number of workers", "Section 3"),
    Symbol("M", r"M", "workers sampled in a round", "Theorem 4.5"),
    Symbol("R", r"R", "number of rounds", "Theorem 4.3"),
    Symbol("I", r"I", "local steps in a round", "Section 3"),
    Symbol("gamma", r"\gamma", "local learning rate", "Section 3"),
    Symbol("eta", r"\eta", "global learning rate", "Section 3"),
    Symbol("beta", r"\beta", "momentum of the local steps", "Algorithm 1"),
    Symbol("beta1", r"\beta_1", "decay of FedAdam's first moment", "Algorithm 2"),
    Symbol("beta2", r"\beta_2", "decay of FedAdam's second moment", "Algorithm 2"),
    Symbol("tau", r"\tau", "small number that FedAdam adds to the root of the second moment", "Algorithm 2"),
    Symbol("mu", r"\mu", "strong convexity of f: the smallest eigenvalue of its Hessian", "Assumption A.8"),
    Symbol("L_tilde", r"\tilde{L}", "largest smoothness of a local objective", "Assumption 3.1"),
    Symbol("L_g", r"L_g", "smoothness of the global objective", "Assumption 4.1"),
    Symbol("L_h", r"L_h", "pseudo-Lipschitz constant of the averaged gradients", "Assumption 4.2"),
    Symbol("L_h_paper", r"\max_i\|A_i-A\|", "the paper's value of L_h for quadratics", "Proposition 5.3"),
    Symbol("L_h_rms", r"\sqrt{\frac1N\sum_i\|A_i-A\|^2}", "root mean square of |A_i - A|", "fedgauge"),
    Symbol("sigma", r"\sigma", "standard deviation of a stochastic gradient", "Assumption 3.2"),
    Symbol("sigma2", r"\sigma^2", "variance of a stochastic gradient", "Assumption 3.2"),
    Symbol(
        "sigma_rms",
        r"\sqrt{\frac1N\sum_i\sigma_i^2}",
        "root mean square over workers of a stochastic gradient's standard deviation",
        "fedgauge",
    ),
    Symbol("zeta", r"\zeta", "gradient divergence between workers", "Assumption 3.3"),
    Symbol("zeta_rms", r"\zeta_{\mathrm{rms}}", "root mean square of the gradient divergence over workers", "fedgauge"),
    Symbol("zeta2", r"\zeta^2", "squared gradient divergence between workers", "Assumption 3.3"),
    Symbol(
        "zeta_local",
        r"\sqrt{\frac1N\sum_i\|\nabla F_i(x_i^{r,k})-\nabla f(x_i^{r,k})\|^2}",
        "gradient divergence at local models, its root mean square over workers",
        "fedgauge",
    ),
    Symbol("G", r"G", "largest entry of a stochastic gradient", "Assumption A.6"),
    Symbol("F", r"\mathcal{F}", "gap between the first loss and the smallest: f(x0) - f*", "Section 4"),
    Symbol("d0", r"\|\bar{x}^0-x^*\|^2", "squared distance between the first model and the best", "Theorem A.9"),
    Symbol("kappa", r"\kappa", "largest 1 - eigenvalue/norm of a local Hessian", "Appendix A.2"),
    Symbol("varphi", r"\varphi(\kappa)", "largest of 1 and kappa: growth of one local step", "Theorem A.2"),
    Symbol("phi", r"\phi(\kappa,k)", "sum of the first k even powers of varphi", "Theorem A.2"),
    Symbol("x_star", r"x^*", "a minimiser of f", "Section 4"),
    Symbol("f_star", r"f^*", "smallest value of f", "Section 4"),
    Symbol("loss", r"f(\bar{x}^r)", "global objective at the global model", "Section 3"),
    Symbol("grad2", r"\|\nabla f(\bar{x}^r)\|^2", "squared gradient norm at the global model", "Theorem 4.3"),
    Symbol(
        "spread",
        r"\frac1N\sum_i\|x_i^{r,I}-\hat{x}^{r,I}\|^2",
        "mean squared distance of local models from their mean",
        "Assumption 4.2",
    ),
    Symbol(
        "deviation2",
        r"\|\frac1N\sum_i\nabla F_i(x_i^{r,I})-\nabla f(\hat{x}^{r,I})\|^2",
        "squared distance of the averaged gradient from the gradient at the averaged model",
        "Proposition 5.2",
    ),
    Symbol("rho", r"\rho", "average drift: how far the averaged local models go", "Wang et al. 2022, (15)"),
    Symbol("drift", r"\rho_{\mathrm{local}}", "what local steps add to the average drift", "fedgauge"),
    Symbol("alpha_h", r"\alpha", "how far the workers' gradient errors add up, at most N", "after Das et al. 2022"),
    Symbol("E", r"E(I)", "efficiency of I local steps: the share of them that counts", "fedgauge"),
    Symbol("B", r"B(x)", "dissimilarity of local gradients", "Li et al. 2020"),
    Symbol("diversity", r"\Delta(x)", "gradient diversity", "Yin et al. 2018"),
    Symbol(
        "delta",
        r"\max_i\|H_i-H\|",
        "largest distance of a local Hessian from the mean Hessian",
        "Karimireddy et al. 2021",
    ),
    Symbol("label_js", r"D_{\mathrm{JS}}", "mean Jensen-Shannon distance of label distributions", "fedgauge"),
    Symbol("label_hellinger", r"D_{\mathrm{H}}", "mean Hellinger distance of label distributions", "fedgauge"),
    Symbol("label_emd", r"D_{\mathrm{EM}}", "mean earth mover's distance of label distributions", "fedgauge"),
)

SYMBOLS: dict[str, Symbol] = {row.name: row for row in _ROWS}
SIGNED = frozenset(("mu", "x_star", "f_star", "loss", "rho", "drift", "alpha_h", "E"))
"""The constants that may be negative, or whose estimates may; no other number can be what its symbol means."""


def symbol(name: str) -> Symbol:
    """Look a symbol up by its name in code.

    >>> symbol("L_h").latex
    'L_h'
    >>> symbol("L_hh")
    Traceback (most recent call last):
    fedgauge.base.errors.InputError: There is no symbol L_hh; did you mean L_h?
    """
    if name not in SYMBOLS:
        raise InputError(f"There is no symbol {name}; {nearest(name, SYMBOLS)}")
    return SYMBOLS[name]
