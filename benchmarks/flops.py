"""The floating-point operations of a traced step, counted from its graph; a multiply-add is two.

What is counted are the products: convolutions, matrix products and their gradients, whose inputs' shapes say it all. Element-wise work is left out, as
it is wherever a net's FLOPs are quoted: of ResNet-50 it is about one per cent. A convolution counts every tap of its window, those on padding too. Every
gradient convolution has as many products as the forward one; TensorFlow's own profiler counts some per mille more for those of strided convolutions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

# Each takes an operation and returns its multiply-adds. A shape that is not known in full makes math.prod raise TypeError.


def _convolution(operation: Any) -> int:
    """Inputs x and filter (height, width, in, out); a product for each element of the output and each tap that leads to it."""
    return math.prod(operation.outputs[0].shape) * math.prod(operation.inputs[1].shape[:-1])


def _gradient_of_input(operation: Any) -> int:
    """Inputs the sizes of x, filter, gradient of the output."""
    return math.prod(operation.inputs[2].shape) * math.prod(operation.inputs[1].shape[:-1])


def _gradient_of_filter(operation: Any) -> int:
    """Inputs x, the sizes of the filter, gradient of the output."""
    return math.prod(operation.inputs[2].shape) * math.prod(operation.outputs[0].shape[:-1])


def _depthwise(operation: Any) -> int:
    """As `_convolution`, but the filter (height, width, in, multiplier) meets each channel alone."""
    return math.prod(operation.outputs[0].shape) * math.prod(operation.inputs[1].shape[:2])


def _depthwise_gradient_of_input(operation: Any) -> int:
    return math.prod(operation.inputs[2].shape) * math.prod(operation.inputs[1].shape[:2])


def _depthwise_gradient_of_filter(operation: Any) -> int:
    return math.prod(operation.inputs[2].shape) * math.prod(operation.outputs[0].shape[:2])


def _matrix_product(operation: Any) -> int:
    inner = operation.inputs[0].shape[0 if operation.get_attr("transpose_a") else 1]
    return math.prod(operation.outputs[0].shape) * int(inner)


def _batch_matrix_product(operation: Any) -> int:
    inner = operation.inputs[0].shape[-2 if operation.get_attr("adj_x") else -1]
    return math.prod(operation.outputs[0].shape) * int(inner)


def _einsum(operation: Any) -> int:
    """A product of two for every combination of all its indices; one operand alone is only summed or turned round."""
    if len(operation.inputs) != 2:
        return 0
    asked = operation.get_attr("equation").decode().split("->")[0].split(",")
    if "." in "".join(asked):
        raise TypeError("an ellipsis stands for indices that have no names")
    sizes = {index: int(size) for indices, x in zip(asked, operation.inputs) for index, size in zip(indices, x.shape)}
    return math.prod(sizes.values())


_PRODUCTS: dict[str, Callable[[Any], int]] = {
    "Conv2D": _convolution,
    "Conv3D": _convolution,
    "Conv2DBackpropInput": _gradient_of_input,
    "Conv3DBackpropInputV2": _gradient_of_input,
    "Conv2DBackpropFilter": _gradient_of_filter,
    "Conv3DBackpropFilterV2": _gradient_of_filter,
    "DepthwiseConv2dNative": _depthwise,
    "DepthwiseConv2dNativeBackpropInput": _depthwise_gradient_of_input,
    "DepthwiseConv2dNativeBackpropFilter": _depthwise_gradient_of_filter,
    "MatMul": _matrix_product,
    "BatchMatMul": _batch_matrix_product,
    "BatchMatMulV2": _batch_matrix_product,
    "BatchMatMulV3": _batch_matrix_product,
    "Einsum": _einsum,
}

_CALLS = {"PartitionedCall": "f", "StatefulPartitionedCall": "f"}
"""Operations that run a function once, and the attribute that names it."""

_BRANCHES = {
    "If": ("then_branch", "else_branch"),
    "StatelessIf": ("then_branch", "else_branch"),
    "While": ("cond", "body"),
    "StatelessWhile": ("cond", "body"),
}
"""Operations that run functions how often the graph does not tell."""

_OPAQUE = ("CudnnRNN", "_Fused", "Fused", "SparseTensorDenseMatMul", "SparseMatMul", "Case", "StatelessCase")
"""Beginnings of the names of operations that multiply, and of which shapes alone do not tell how much. Fused batch norms are none of them."""


def flops_of(graph: Any) -> float | None:
    """Return the FLOPs of running `graph` (a FuncGraph, of a concrete function) once, None where they cannot be counted: a loop or a branch that
    multiplies, a kernel that says nothing of its work, or a shape that is known only when it runs.

    What no output and no side effect needs is not counted, since it is never run: the gradient by the pictures, which the tape makes all the same.
    """
    try:
        return 2.0 * _multiply_adds(graph)
    except (TypeError, ValueError):  # what is unknown has no number; a shape of unknown rank cannot even be looped over
        return None


def _multiply_adds(graph: Any) -> int:
    total = 0
    for operation in _needed(graph):
        kind = operation.type
        if kind in _PRODUCTS:
            total += _PRODUCTS[kind](operation)
        elif kind in _CALLS:
            total += _multiply_adds(_function(graph, operation, _CALLS[kind]))
        elif kind in _BRANCHES:
            if any(_multiply_adds(_function(graph, operation, name)) for name in _BRANCHES[kind]):
                raise TypeError(f"{kind} multiplies, and how often it runs is not known")
        elif kind.startswith(_OPAQUE) and "BatchNorm" not in kind:
            raise TypeError(f"{kind} does not say how much it multiplies")
    return total


def _needed(graph: Any) -> set[Any]:
    """Return the operations that an output or a side effect of `graph` depends on."""
    found: set[Any] = set()
    waiting = [tensor.op for tensor in graph.outputs] + list(graph.control_outputs)
    while waiting:
        operation = waiting.pop()
        if operation not in found:
            found.add(operation)
            waiting += [tensor.op for tensor in operation.inputs]
            waiting += operation.control_inputs
    return found


def _function(graph: Any, operation: Any, attribute: str) -> Any:
    """Return the graph of the function that `operation` runs."""
    found = graph._get_function(operation.get_attr(attribute).name)  # noqa: SLF001 - nothing public leads from a name to a graph
    inner = getattr(found, "graph", None)
    if inner is None:
        raise TypeError(f"the function of {operation.name} has no graph to look at")
    return inner
