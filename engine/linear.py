"""Weight matrices and what they are multiplied with: the only place that knows how a weight is stored."""

from torch import Tensor, addmm
from torch.nn.functional import linear


class Linear:
    """A dense weight [out, in], in the model's dtype."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, out] from x [rows, in]."""
        return linear(x, self.weight)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """residual [rows, out] plus the product, in one pass over the memory."""
        return addmm(residual, x, self.weight.t())
