"""An ONNX graph of doubles that is built node by node, and run by onnxruntime."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise._files import replace_file
from equipoise._inputs import need

OPSET, ML_OPSET, IR_VERSION = 18, 3, 9
"""Old enough for every onnxruntime that the extra allows."""

WHAT = "ONNX"


class OnnxGraph:
    """Nodes of a graph, in the order they are added; a value is the name of a node's output."""

    def __init__(self) -> None:
        need("onnx", "export", "1.17", what=WHAT)
        self._helper = need("onnx.helper", "export", what=WHAT)
        self._types = need("onnx", "export", what=WHAT).TensorProto
        self._of_array = need("onnx.numpy_helper", "export", what=WHAT).from_array
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._constants: list[Any] = []
        self._names = 0

    def _name(self) -> str:
        self._names += 1
        return f"_{self._names}"

    def input(self, name: str, shape: Sequence[str | int], *, text: bool = False) -> str:
        """Add an input of doubles, or of strings."""
        kind = self._types.STRING if text else self._types.DOUBLE
        self._inputs.append(self._helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def output(self, name: str, value: str, shape: Sequence[str | int]) -> None:
        """Add an output of doubles."""
        self._nodes.append(self._helper.make_node("Identity", [value], [name]))
        info = self._helper.make_tensor_value_info(name, self._types.DOUBLE, list(shape))
        self._outputs.append(info)

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        """Add an array of numbers."""
        name = self._name()
        self._constants.append(self._of_array(np.asarray(value, dtype), name))
        return name

    def integers(self, *values: int) -> str:
        """Add a vector of integers, such as the axes of a reduction."""
        return self.constant(values, np.int64)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node."""
        name = self._name()
        if "domain" not in attributes and "to" in attributes:
            attributes["to"] = getattr(self._types, attributes["to"])
        self._nodes.append(self._helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def reduce(self, kind: str, value: str, axis: int = 1) -> str:
        """Reduce an axis to one element."""
        return self.op(f"Reduce{kind}", value, self.integers(axis), keepdims=1)

    def model(self, text: str, about: Mapping[str, Any]) -> Any:
        """Return the ModelProto, checked; `about` is written as JSON into its metadata."""
        helper, onnx = self._helper, need("onnx", "export", what=WHAT)
        graph = helper.make_graph(
            self._nodes, "equipoise", self._inputs, self._outputs, self._constants, text
        )
        model = helper.make_model(
            graph,
            opset_imports=[
                helper.make_opsetid("", OPSET),
                helper.make_opsetid("ai.onnx.ml", ML_OPSET),
            ],
            ir_version=IR_VERSION,
            producer_name="equipoise",
            producer_version=need("equipoise").__version__,
            doc_string=text,
        )
        helper.set_model_props(model, {name: json.dumps(value) for name, value in about.items()})
        onnx.checker.check_model(model)
        return model


def run_onnx(model: Any, inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Return the first output of a model, as onnxruntime computes it."""
    runtime = need("onnxruntime", "export", "1.20", what="verifying ONNX")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return np.asarray(session.run(None, dict(inputs))[0])


def onnx_engine() -> str:
    """Return the name and version of the engine that `run_onnx` uses."""
    runtime = need("onnxruntime", "export", "1.20", what="verifying ONNX")
    return f"onnxruntime {runtime.__version__}"


def write_onnx(model: Any, path: str | os.PathLike[str] | None) -> Any:
    """Return the model; write it, whole or not at all, where there is a path."""
    if path is not None:
        replace_file(Path(path), model.SerializeToString())
    return model
