"""Rules that convert tensors between our models and Hugging Face's classes, each in both directions.

Names with `ours` refer to tensors or settings of glassformer's models, and names with `theirs` to those of a Hugging
Face class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from glassformer.base.config import ModelConfig
from glassformer.base.errors import GlassError

Tensors = dict[str, Tensor]
Step = Callable[[Tensor, ModelConfig], Tensor]


@dataclass(frozen=True)
class Change:
    """Conversion of our tensor to the Hugging Face tensor (`export`) and back (`read`)."""

    export: Step
    read: Step


SAME = Change(lambda t, _: t, lambda t, _: t)
TRANSPOSED = Change(lambda t, _: t.T if t.ndim == 2 else t, lambda t, _: t.T if t.ndim == 2 else t)
"""GPT-2's Conv1D stores a matrix as (inputs, outputs)."""
ONE_ROW = Change(lambda t, _: t[None], lambda t, _: t[0])
"""Our tensor is (V), and the Hugging Face tensor is (1, V)."""
UNSCALED = Change(lambda t, c: t / math.sqrt(c.K), lambda t, c: t * math.sqrt(c.K))
"""T5 does not divide scores by sqrt(K); its query matrix includes the factor (Raffel et al. 2020, section 3.1.1)."""
SHRUNK = Change(
    lambda t, c: t * math.sqrt(c.width) if c.tied else t, lambda t, c: t / math.sqrt(c.width) if c.tied else t
)
"""T5 with a tied head divides by sqrt(D) between the last norm and the head; our norm's gain includes the factor."""


def rows_before(count: int) -> Change:
    """Return the change that adds `count` unused rows before a position table on export, and drops them on reading."""
    return Change(lambda t, _: torch.cat([t.new_zeros(count, t.shape[1]), t]), lambda t, _: t[count:])


@dataclass(frozen=True)
class Weight:
    """A Hugging Face tensor that is made from one of our tensors, or from several concatenated along the first axis.

    Attributes:
        ours: names of our tensors; `{i}` is a placeholder for the number of a layer.
        theirs: name of the Hugging Face tensor.
        change: the conversion, applied after our tensors are concatenated.
        always: whether the class always has the tensor; if our model lacks it, export writes zeros.
        when: function that returns whether the rule applies to the settings; None: it always applies.
    """

    ours: tuple[str, ...]
    theirs: str
    change: Change = SAME
    always: bool = False
    when: Callable[[ModelConfig], bool] | None = None


@dataclass(frozen=True)
class Implied:
    """A tensor of our model that the class lacks; it must equal another of our tensors (`equals`), or be zero."""

    ours: str
    equals: str | None = None


@dataclass(frozen=True)
class Folded:
    """A Hugging Face table whose first row is added to every vector, such as BERT's segment table.

    Import adds the row to another table; export writes zeros.

    Attributes:
        theirs: name of the table.
        rows: number of rows.
        into: name of the Hugging Face table to which import adds the row.
    """

    theirs: str
    rows: int
    into: str


@dataclass(frozen=True)
class Sinusoids:
    """A Hugging Face table of the sinusoids of Vaswani et al. 2017, all sines before all cosines; files may omit it."""

    theirs: str

    def table(self, config: ModelConfig) -> Tensor:
        """Return the table of sinusoids, (C, D)."""
        positions = torch.arange(config.context, dtype=torch.float64)[:, None]  # (C, 1)
        even = torch.arange(0, config.width, 2, dtype=torch.float64)  # (D/2)
        angles = positions * 10_000.0 ** (-even / config.width)  # (C, D/2)
        return torch.cat([angles.sin(), angles.cos()], dim=1).float()  # (C, D)


@dataclass(frozen=True)
class Neutral:
    """A Hugging Face tensor without effect: an identity matrix (D, D), or a bias (D) of zeros."""

    theirs: str
    matrix: bool

    def tensor(self, width: int) -> Tensor:
        """Return the tensor: the identity matrix (D, D), or zeros (D)."""
        return torch.eye(width) if self.matrix else torch.zeros(width)


@dataclass(frozen=True)
class Unused:
    """A Hugging Face tensor that does not affect the outputs that we use; export writes zeros.

    Attributes:
        theirs: name of the tensor.
        shape: function that returns its shape for our settings.
    """

    theirs: str
    shape: Callable[[ModelConfig], tuple[int, ...]]


Rule = Weight | Implied | Folded | Sinusoids | Neutral | Unused


def weight(
    ours: str,
    theirs: str,
    change: Change = SAME,
    always: bool = False,
    when: Callable[[ModelConfig], bool] | None = None,
) -> Weight:
    """Return the rule that maps one of our tensors to one Hugging Face tensor."""
    return Weight((ours,), theirs, change, always, when)


def stack_name(name: str) -> str:
    """Return the stack of a tensor name: the part before `.blocks.`."""
    return name.partition(".blocks.")[0]


def expanded(rules: Sequence[Rule], config: ModelConfig) -> list[Rule]:
    """Return the rules for these settings, with `{i}` replaced by the number of each layer."""
    expanded_rules: list[Rule] = []
    for rule in rules:
        if isinstance(rule, Folded | Sinusoids | Neutral | Unused):
            expanded_rules.append(rule)
            continue
        if isinstance(rule, Weight) and rule.when is not None and not rule.when(config):
            continue
        first_name = rule.ours[0] if isinstance(rule, Weight) else rule.ours
        in_encoder = stack_name(first_name) == "encoder"
        layers = (config.encoder_layers if in_encoder else None) or config.layers
        for i in range(layers) if "{i}" in first_name else [0]:
            if isinstance(rule, Implied):
                expanded_rules.append(Implied(rule.ours.replace("{i}", str(i)), rule.equals))
            else:
                names = tuple(name.replace("{i}", str(i)) for name in rule.ours)
                expanded_rules.append(replace(rule, ours=names, theirs=rule.theirs.replace("{i}", str(i))))
    return expanded_rules


def to_theirs(rules: Sequence[Rule], ours: Tensors, config: ModelConfig, owner: str) -> Tensors:
    """Convert our state dict to the tensors of a Hugging Face class.

    Args:
        rules: rules of the class.
        ours: our state dict, on any device, "meta" included.
        config: settings of our model.
        owner: name of the class, for error messages.

    Raises:
        GlassError: the class lacks one of our tensors, and does not imply the value that the tensor has.
    """
    unused = dict(ours)
    theirs = Tensors()
    for rule in expanded(rules, config):
        if isinstance(rule, Implied):
            _check_implied(rule, ours, unused, owner)
        elif isinstance(rule, Sinusoids):
            empty_table = ours["embedding.tokens.weight"].new_empty(config.context, config.width)
            theirs[rule.theirs] = empty_table if empty_table.is_meta else rule.table(config)
        elif isinstance(rule, Folded):
            theirs[rule.theirs] = theirs[rule.into].new_zeros(rule.rows, config.width)
        elif isinstance(rule, Unused):
            theirs[rule.theirs] = ours["embedding.tokens.weight"].new_zeros(rule.shape(config))
        elif isinstance(rule, Neutral):
            theirs[rule.theirs] = rule.tensor(config.width).to(ours["embedding.tokens.weight"].device)
        elif all(name in ours for name in rule.ours):
            parts = [ours[name] for name in rule.ours]  # two rules may use the same tensor
            unused = {name: tensor for name, tensor in unused.items() if name not in rule.ours}
            theirs[rule.theirs] = rule.change.export(torch.cat(parts) if len(parts) > 1 else parts[0], config)
        elif rule.always:
            theirs[rule.theirs] = rule.change.export(torch.cat([_zeros(name, ours) for name in rule.ours]), config)
    if unused:
        raise GlassError(f"{owner} has no tensor for {next(iter(unused))}", "Choose another --architecture.")
    return theirs


def _check_implied(rule: Implied, ours: Tensors, unused: Tensors, owner: str) -> None:
    tensor = unused.pop(rule.ours, None)
    if tensor is None or tensor.is_meta:
        return
    expected = ours[rule.equals] if rule.equals else torch.zeros_like(tensor)
    if tensor.shape != expected.shape or not torch.equal(tensor, expected):
        what = f"equal to {rule.equals}" if rule.equals else "zero"
        raise GlassError(
            f"{owner} has no tensor for {rule.ours}, which is not {what} in this run", "Choose another --architecture."
        )


def _zeros(name: str, ours: Tensors) -> Tensor:
    """Return zeros for a bias that our model lacks, one for each output of the layer."""
    weights = ours[name.removesuffix("bias") + "weight"] if name != "head.bias" else ours["embedding.tokens.weight"]
    return weights.new_zeros(weights.shape[0])


def to_ours(rules: Sequence[Rule], theirs: Tensors, expected: Tensors, config: ModelConfig) -> Tensors:
    """Convert the tensors of a Hugging Face class to our state dict.

    Args:
        rules: rules of the class.
        theirs: tensors of the class, with the shapes that `to_theirs` returns.
        expected: our state dict, of which only names and shapes are used.
        config: settings of our model.

    Raises:
        GlassError: a tensor that our models lack has an effect.
    """
    ours = Tensors()
    theirs = dict(theirs)
    for rule in rules:
        if isinstance(rule, Folded):
            theirs[rule.into] = theirs[rule.into].float() + theirs[rule.theirs][0].float()
    for rule in expanded(rules, config):
        if isinstance(rule, Neutral) and not torch.equal(theirs[rule.theirs].float(), rule.tensor(config.width)):
            description = "the identity" if rule.matrix else "zeros"
            raise GlassError(
                f"{rule.theirs} is not {description}, and our models have no such layer before the output layer",
                "Nearest: a model whose output layer reads the first token's vector directly.",
            )
        if isinstance(rule, Folded | Sinusoids | Neutral | Unused):
            continue
        if isinstance(rule, Implied):
            if rule.ours in expected:
                ours[rule.ours] = ours[rule.equals] if rule.equals else torch.zeros(expected[rule.ours].shape)
            continue
        if not all(name in expected for name in rule.ours):
            continue
        parts = rule.change.read(theirs[rule.theirs].float(), config)
        sizes = [expected[name].shape[0] for name in rule.ours]
        ours.update(zip(rule.ours, parts.split(sizes) if len(sizes) > 1 else [parts], strict=True))
    return {name: tensor.clone() for name, tensor in ours.items()}
