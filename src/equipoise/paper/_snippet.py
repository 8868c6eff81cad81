"""MMCE-W as the paper's code computes it, kept because the published ranking depends on it.

The paper's `groupwise_mmce_w` first keeps the confidences of the right (and of the wrong) rows, and
then picks from that shorter list by row numbers of the whole batch. A row number beyond its end
reads 0 on a GPU, where the paper trained (on a CPU it would have stopped the program). So row i of
group g stands for the i-th right and the i-th wrong row of the batch, of whatever group they are.
The formula of the text is `mmce-w`; this is `mmce-w*`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from equipoise.training import LOSSES, Batch, Loss, laplacian_form, safe_sqrt


def mmce_w_snippet(batch: Batch, *, kernel_width: float = 0.4) -> Tensor:
    """Return sqrt(v' K v) over the i-th right and the i-th wrong confidence of each row i."""
    confidence, correct = batch.top_label()
    right, wrong = _moved_up(confidence, correct), _moved_up(confidence, 1.0 - correct)
    share = batch.shares(torch.ones_like(correct))
    v = torch.cat([share * (1.0 - right), -share * wrong], dim=-1)
    return safe_sqrt(laplacian_form(v, torch.cat([right, wrong], dim=-1), kernel_width), v)


def _moved_up(values: Tensor, selected: Tensor) -> Tensor:
    """Return the selected values (..., n) one after another, and 0 behind them."""
    n = values.shape[-1]
    # those not selected go to a place behind the last, which is cut off
    place = torch.where(selected > 0, selected.cumsum(-1).long() - 1, n)
    room = values.new_zeros(*values.shape[:-1], n + 1)
    return room.scatter(-1, place, values)[..., :n]


TECHNIQUES = {
    **LOSSES,
    "mmce-w*": Loss(mmce_w_snippet, "pair-wise", added=True, constants=("kernel_width",)),
}
"""The losses of the paper, and `mmce-w*`."""
