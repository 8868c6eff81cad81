"""Many multilayer perceptrons of one shape as one tensor program with a leading `config` axis.

The backward pass is written by hand, so that every product is one batched product into a reused
buffer; the gradient of the loss in the logits is given. A test compares it with `torch.nn`.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Layer = tuple[Tensor, Tensor]
"""Weight (in, out) and bias (out,) of one layer of one configuration."""


class StackedMLP:
    """Perceptrons with ReLU, one per configuration.

    `sizes` are the inputs, the nodes of each hidden layer, and the classes. The initial weights of
    a configuration depend on its seed alone (Glorot uniform, bias 0). With `output_relu` the logits
    go through ReLU too, as in the paper.

    `hidden` has the weight (config, in, out) and bias (config, 1, out) of each hidden layer;
    `output` the weight (config, class, in) and bias (config, class, 1): with the classes first the
    skinny product of the last layer runs six times faster.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        seeds: Sequence[int],
        *,
        output_relu: bool = False,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.sizes, self.output_relu = tuple(sizes), output_relu
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.hidden: list[Layer] = []
        for fan_in, fan_out in itertools.pairwise(sizes):
            limit = math.sqrt(6.0 / (fan_in + fan_out))
            drawn = [torch.rand(fan_in, fan_out, generator=g).double() for g in generators]
            weight = (torch.stack(drawn) * 2.0 - 1.0) * limit
            bias = torch.zeros(len(seeds), 1, fan_out)
            self.hidden.append((weight.to(device, dtype), bias.to(device, dtype)))
        weight, bias = self.hidden.pop()
        self.output: Layer = (weight.mT.contiguous(), bias.mT.contiguous())
        for parameter in self.parameters():
            parameter.grad = torch.zeros_like(parameter)
        self._buffers: dict[tuple[str, int, int], Tensor] = {}

    def __len__(self) -> int:
        return len(self.output[0])

    def parameters(self) -> list[Tensor]:
        """Return all weights and biases, each with the configuration first."""
        return [tensor for layer in (*self.hidden, self.output) for tensor in layer]

    def layers(self, config: int) -> list[Layer]:
        """Return a copy of one configuration's layers, on the CPU."""
        hidden = [(w[config].cpu().clone(), b[config, 0].cpu().clone()) for w, b in self.hidden]
        weight, bias = self.output
        return [*hidden, (weight[config].T.cpu().clone(), bias[config, :, 0].cpu().clone())]

    def copy(self) -> StackedMLP:
        """Return networks of their own with the same weights, to hold or to apply."""
        twin = copy.copy(self)
        twin.hidden = [(w.clone(), b.clone()) for w, b in self.hidden]
        twin.output = (self.output[0].clone(), self.output[1].clone())
        twin._buffers = {}
        return twin

    def put(self, places: NDArray[np.int64], other: StackedMLP, some: NDArray[np.bool_]) -> None:
        """Set the weights at `places` to those of `other`, of some of its configurations only."""
        if some.any():
            to, source = torch.from_numpy(places[some]), torch.from_numpy(np.flatnonzero(some))
            for mine, others in zip(self.parameters(), other.parameters(), strict=True):
                mine[to.to(mine.device)] = others[source.to(mine.device)]

    def keep(self, configs: Tensor) -> None:
        """Drop all configurations but some, (config,) booleans."""
        self.hidden = [(w[configs], b[configs]) for w, b in self.hidden]
        self.output = (self.output[0][configs], self.output[1][configs])
        for parameter in self.parameters():
            parameter.grad = torch.zeros_like(parameter)
        self._buffers = {}

    def _buffer(self, name: str, level: int, *shape: int) -> Tensor:
        key = (name, level, shape[1])
        if key not in self._buffers:
            weight = self.output[0]
            self._buffers[key] = weight.new_empty(shape)
        return self._buffers[key]

    def forward(self, X: Tensor) -> Tensor:
        """Return the logits (config, n, class) of rows X (n, in)."""
        return self._logits(self._activations(X)).mT

    def _activations(self, X: Tensor) -> list[Tensor]:
        configs, n = len(self), len(X)
        found = [X.expand(configs, *X.shape)]
        for level, (weight, bias) in enumerate(self.hidden):
            out = self._buffer("active", level, configs, n, weight.shape[-1])
            torch.baddbmm(bias, found[-1], weight, out=out)
            found.append(out.relu_())
        return found

    def _logits(self, activations: list[Tensor]) -> Tensor:
        weight, bias = self.output
        logits = torch.baddbmm(bias, weight, activations[-1].mT)
        return logits.relu_() if self.output_relu else logits

    def backward(self, X: Tensor, slope: Callable[[Tensor], Tensor]) -> None:
        """Fill the gradients of all parameters for one batch X (n, in).

        `slope` gives the gradient (config, n, class) of the loss in the logits.
        """
        activations = self._activations(X)
        logits = self._logits(activations)
        back = slope(logits.mT).mT
        if self.output_relu:
            back = back * (logits > 0)
        weight, bias = self.output
        torch.bmm(back, activations[-1], out=weight.grad)
        torch.sum(back, 2, keepdim=True, out=bias.grad)
        configs, n = len(self), len(X)
        flow = self._buffer("flow", len(self.hidden), configs, n, weight.shape[-1])
        torch.bmm(back.mT, weight, out=flow)
        for level in range(len(self.hidden) - 1, -1, -1):
            weight, bias = self.hidden[level]
            torch.ops.aten.threshold_backward.grad_input(
                flow, activations[level + 1], 0, grad_input=flow
            )
            torch.bmm(activations[level].mT, flow, out=weight.grad)
            torch.sum(flow, 1, keepdim=True, out=bias.grad)
            if level:
                below = self._buffer("flow", level, configs, n, weight.shape[1])
                torch.bmm(flow, weight.mT, out=below)
                flow = below


class Adam:
    """Adam as TensorFlow has it: epsilon is added to sqrt(v) before its bias is corrected."""

    def __init__(self, parameters: list[Tensor], rate: float, epsilon: float = 1e-7) -> None:
        self._parameters, self._rate, self._epsilon = parameters, rate, epsilon
        self._mean = [torch.zeros_like(p) for p in parameters]
        self._square = [torch.zeros_like(p) for p in parameters]
        device = parameters[0].device
        self._steps, self._step = 0, torch.zeros((), device=device)
        # a private function, so a torch without it takes the plain steps below
        self._fused = device.type in ("cpu", "cuda") and hasattr(torch, "_fused_adam_")

    def step(self) -> None:
        """Move all parameters by their gradients."""
        self._steps += 1
        self._step += 1
        root = math.sqrt(1.0 - 0.999**self._steps)
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        if self._fused:
            # what torch.optim.Adam(fused=True) calls, at half the cost of its step; it adds its
            # epsilon after the correction, so that epsilon / root is the same update
            torch._fused_adam_(
                self._parameters,
                gradients,
                self._mean,
                self._square,
                [],
                [self._step] * len(gradients),
                lr=self._rate,
                beta1=0.9,
                beta2=0.999,
                weight_decay=0.0,
                eps=self._epsilon / root,
                amsgrad=False,
                maximize=False,
            )
            return
        rate = self._rate * root / (1.0 - 0.9**self._steps)
        for p, g, m, v in zip(self._parameters, gradients, self._mean, self._square, strict=True):
            m.lerp_(g, 0.1)
            v.mul_(0.999).addcmul_(g, g, value=0.001)
            p.addcdiv_(m, v.sqrt().add_(self._epsilon), value=-rate)

    def keep(self, configs: Tensor, parameters: list[Tensor]) -> None:
        """Drop the moments of all configurations but some; `parameters` are those that are left."""
        self._parameters = parameters
        self._mean = [m[configs] for m in self._mean]
        self._square = [v[configs] for v in self._square]

    def forget(self, configs: Tensor) -> None:
        """Clear the moments of some configurations, (config,) booleans."""
        for moment in (*self._mean, *self._square):
            moment[configs] = 0.0
