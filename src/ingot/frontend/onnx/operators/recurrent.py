"""LSTM, GRU and RNN over whole sequences.

ONNX and PyTorch order gates differently: weights are reordered, and PyTorch's own layers run. The one form that PyTorch
does not have, a GRU that resets before its product, is a loop over the sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ingot.base.errors import ImportedModelError
from ingot.frontend.onnx.operator_table import NodeCall, defines

_DEFAULTS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
_ORDERS = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
"""Where PyTorch's gates are among ONNX's: i o f c become i f c o, z r h become r z h."""


def _directions(call: NodeCall) -> int:
    """How many directions there are; refuses what PyTorch's layers do not do."""
    direction, count = call.attribute("direction", "forward"), len(call.tensor(1))
    defaults = _DEFAULTS[call.node.operator] * count
    activations = [str(one) for one in call.attribute("activations", defaults)]
    if call.node.operator == "RNN" and set(activations) == {"Relu"}:
        defaults = activations
    if [one.lower() for one in activations] != [one.lower() for one in defaults]:
        raise ImportedModelError(f"the activations {', '.join(activations)} are not known")
    if call.attribute("clip") is not None or call.attribute("layout", 0) or call.attribute("input_forget", 0):
        raise ImportedModelError("clip, input_forget and layout 1 are not known")
    if call.has(4) and set(call.known(4)) != {call.tensor(0).shape[0]}:
        raise ImportedModelError("sequences of different lengths are not known")
    if direction not in ("forward", "reverse", "bidirectional"):
        raise ImportedModelError(f"the direction {direction!r} is not known")
    return count


def _reordered(call: NodeCall, weight: torch.Tensor) -> torch.Tensor:
    order = _ORDERS[call.node.operator]
    gates = weight.chunk(len(order))
    return torch.cat([gates[one] for one in order]) if len(order) > 1 else weight


def _weights(call: NodeCall, direction: int) -> list[torch.Tensor]:
    """The two weights and two biases of one direction, in PyTorch's order."""
    inner, recurrent, bias = call.tensor(1)[direction], call.tensor(2)[direction], call.optional(3)
    half = inner.shape[0]
    both = bias[direction].split(half) if bias is not None else [inner.new_zeros(half)] * 2
    return [_reordered(call, one) for one in (inner, recurrent, *both)]


def _first_state(call: NodeCall, position: int, directions: int) -> torch.Tensor:
    given = call.optional(position)
    if given is not None:
        return given
    x = call.tensor(0)
    return x.new_zeros(directions, x.shape[1], call.tensor(2).shape[-1])


def _sequence(x: torch.Tensor, call: NodeCall) -> torch.Tensor:
    return x.flip(0) if call.attribute("direction", "forward") == "reverse" else x


def _outputs(call: NodeCall, output: torch.Tensor, states: Sequence[torch.Tensor], directions: int) -> Any:
    """What ONNX gives: the directions are an axis of their own."""
    length, batch, _ = output.shape
    whole = output.reshape(length, batch, directions, -1).permute(0, 2, 1, 3)
    return (_sequence(whole, call), *states)


@defines("LSTM")
def _lstm(call: NodeCall) -> Any:
    directions = _directions(call)
    if call.has(7):
        raise ImportedModelError("peepholes are not known")
    states = [_first_state(call, position, directions) for position in (5, 6)]
    weights = [one for direction in range(directions) for one in _weights(call, direction)]
    x = _sequence(call.tensor(0), call)
    output, hidden, cell = torch.lstm(x, states, weights, True, 1, 0.0, False, directions == 2, False)
    return _outputs(call, output, (hidden, cell), directions)


@defines("RNN")
def _rnn(call: NodeCall) -> Any:
    directions = _directions(call)
    weights = [one for direction in range(directions) for one in _weights(call, direction)]
    is_relu = set(call.attribute("activations", ["Tanh"])) == {"Relu"}
    x, state = _sequence(call.tensor(0), call), _first_state(call, 5, directions)
    layer = torch.rnn_relu if is_relu else torch.rnn_tanh
    output, hidden = layer(x, state, weights, True, 1, 0.0, False, directions == 2, False)
    return _outputs(call, output, (hidden,), directions)


@defines("GRU")
def _gru(call: NodeCall) -> Any:
    directions = _directions(call)
    state = _first_state(call, 5, directions)
    if call.attribute("linear_before_reset", 0):
        weights = [one for direction in range(directions) for one in _weights(call, direction)]
        x = _sequence(call.tensor(0), call)
        output, hidden = torch.gru(x, state, weights, True, 1, 0.0, False, directions == 2, False)
        return _outputs(call, output, (hidden,), directions)
    x, parts, last = call.tensor(0), [], []
    for direction in range(directions):
        is_backwards = direction == 1 or call.attribute("direction", "forward") == "reverse"
        made, hidden = _gru_loop(x.flip(0) if is_backwards else x, state[direction], _weights(call, direction))
        parts.append(made.flip(0) if is_backwards else made)
        last.append(hidden)
    return torch.stack(parts, 1), torch.stack(last)


def _gru_loop(
    x: torch.Tensor, hidden: torch.Tensor, weights: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """A GRU whose reset gate works on the state before its product."""
    inner, recurrent, inner_bias, recurrent_bias = weights
    given = torch.nn.functional.linear(x, inner, inner_bias + recurrent_bias).chunk(3, -1)
    of_reset, of_update, of_new = recurrent.chunk(3)
    states = []
    for step in range(x.shape[0]):
        reset = torch.sigmoid(given[0][step] + hidden @ of_reset.t())
        update = torch.sigmoid(given[1][step] + hidden @ of_update.t())
        new = torch.tanh(given[2][step] + (reset * hidden) @ of_new.t())
        hidden = new + update * (hidden - new)
        states.append(hidden)
    return torch.stack(states), hidden
