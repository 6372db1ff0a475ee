"""The words of a suite: methods, networks, data sets and training settings, as frozen models.

Names and options only: no torch. The builders live in ``bnpbench.methods``, ``bnpbench.networks``
and ``bnpbench.datasets``; a test keeps both sets of names equal. Which word a cell may
name where, and why a default never changes, stands in ``settings``.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, prod
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from bnpbench.suite.sites import Misfit, Site


class Options(BaseModel):
    """Base of every table of a suite: unknown keys are errors, values are never coerced."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


Positive = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Position = Literal["post", "pre"]


def kind_or_table(value: Any) -> Any:
    """``"bnp"`` is short for ``{ kind = "bnp" }``."""
    return {"kind": value} if isinstance(value, str) else value


# --- methods --------------------------------------------------------------------------------


class Labelled(Options):
    """A method.

    Attributes:
        normalizes: whether it puts layers where a network asks for a normalization.
    """

    normalizes: ClassVar[bool] = True
    label: str | None = Field(default=None, min_length=1, max_length=60)  # how tables call it; not a setting

    def undivided(self, layer: str, features: int) -> Misfit | None:
        """Why so many features behind ``layer`` cannot be grouped as its options ask; None where they can."""
        return None

    def smallest_set(self, site: Site, examples: int) -> int | None:
        """Values in the smallest set that is normalized together at ``site``; None where one of them is no fault."""
        return None


class Vanilla(Labelled):
    """The network as it is."""

    normalizes: ClassVar[bool] = False
    kind: Literal["vanilla"]


class _BatchStatistics(Labelled):
    """Epsilon and momentum default to TensorFlow's, which the paper's FC and CNN runs used.

    ``input``: whether the network's input is normalized too, as the paper's equation (2) with h⁰ = x reads.
    """

    eps: PositiveFloat = 1e-3
    momentum: Annotated[float, Field(gt=0, le=1)] = 0.01
    input: bool = False  # each feature of x, each channel of images


class BatchNorm(_BatchStatistics):
    """Batch normalization after the activation (``bn``) or before it (``bn-pre``)."""

    kind: Literal["bn", "bn-pre"]
    # by running values; by the average of all mini-batch statistics since the first step; by the statistics of the
    # network as it stands, averaged over the training batches (Algorithm 2 of Ioffe and Szegedy 2015)
    inference: Literal["running", "averaged", "frozen"] = "running"
    sync: bool = True  # on several devices, statistics over all of them; false: each takes its own

    @model_validator(mode="after")
    def _input_of_a_layer(self) -> Self:
        if self.input and self.kind == "bn-pre":
            raise ValueError(
                "bn-pre stands between a layer and its activation and normalizes no layer's input; take bn"
            )
        return self

    @model_validator(mode="after")
    def _momentum_of_running_values(self) -> Self:
        if self.inference != "running" and self.momentum != _BatchStatistics.model_fields["momentum"].default:
            raise ValueError(f'momentum moves running values, by which inference = "{self.inference}" does not go')
        return self

    def smallest_set(self, site: Site, examples: int) -> int | None:
        return examples * site.positions


class Renorm(_BatchStatistics):
    """Batch renormalization (Ioffe 2017); ``clipped`` follows its schedule of r_max and d_max."""

    kind: Literal["renorm"]
    clipped: bool = True


class LayerNorm(Labelled):
    """Layer normalization; epsilon is Keras's."""

    kind: Literal["ln"]
    eps: PositiveFloat = 1e-3
    position: Position = "post"

    def smallest_set(self, site: Site, examples: int) -> int | None:
        return site.features * site.positions


class _Groups(Labelled):
    """Group normalization's groups: so many channels each, or so many groups."""

    channels_per_group: Positive = 4
    groups: Positive | None = None  # instead of channels_per_group
    group_eps: PositiveFloat = 1e-5
    position: Position = "post"

    @model_validator(mode="after")
    def _one_way_to_group(self) -> Self:
        if self.groups is not None and self.channels_per_group != 4:
            raise ValueError("give groups or channels_per_group, not both")
        return self

    def number_of_groups(self, features: int) -> int:
        """How many groups so many features fall into, where they divide."""
        return features // self.channels_per_group if self.groups is None else self.groups

    def undivided(self, layer: str, features: int) -> Misfit | None:
        if self.groups is None:
            option, rest, asked = "channels_per_group", features % self.channels_per_group, "channels a group"
        else:
            option, rest, asked = "groups", features % self.groups, "groups"
        if not rest:
            return None
        number = getattr(self, option)
        return Misfit(
            f"group normalization behind layer {layer!r}: {number} {asked} do not divide its {features} channels",
            option,
        )

    def smallest_set(self, site: Site, examples: int) -> int | None:
        return site.features // self.number_of_groups(site.features) * site.positions


class GroupNorm(_Groups):
    """Group normalization."""

    kind: Literal["gn"]


class FourThings(_BatchStatistics):
    """Batch normalization with four improvements (Summers and Dinneen 2020), each switchable."""

    kind: Literal["4things"]
    ghost_batch: Positive | None = 16  # examples a ghost batch; absent: the whole batch
    example_weight: Fraction = 0.1  # of the example's own statistics at inference; 0: off
    decay: NonNegativeFloat = 1e-4  # L2 on beta and gamma - 1; 0: off
    # channels a group of the combined GN+BN; where there are fewer (the three of an image), all; absent: BN alone
    group: Positive | None = None

    def channels(self, features: int) -> int:
        """How many of so many channels share statistics."""
        return min(self.group or 1, features)

    def undivided(self, layer: str, features: int) -> Misfit | None:
        if not features % self.channels(features):
            return None
        return Misfit(
            f"4things behind layer {layer!r}: {self.group} channels a group do not divide its {features} channels",
            "group",
        )

    def smallest_set(self, site: Site, examples: int) -> int | None:
        ghosts = ceil(examples / (self.ghost_batch or examples))
        return examples // ghosts * self.channels(site.features) * site.positions


class _Preconditioning(Options):
    """BNP's parameters (Algorithms 2 and 3) and what an ablation switches off."""

    rho: Annotated[float, Field(ge=0, lt=1)] = 0.99
    eps1: NonNegativeFloat = 1e-2
    eps2: NonNegativeFloat = 1e-4
    statistics: Literal["running", "batch"] = "running"
    scale: bool = True  # the factor 1/q^2
    center: bool = True  # the mean mu
    standardize: bool = True  # the damped variance
    first_layer: bool = True  # precondition the layer that reads the input
    form: Literal["auto", "plain"] = "auto"  # auto: the lean form on dense layers where it is possible and costs less


class Bnp(Labelled, _Preconditioning):
    """Batch normalization preconditioning."""

    normalizes: ClassVar[bool] = False
    kind: Literal["bnp"]


class BnpGroupNorm(_Preconditioning, _Groups):
    """BNP on a network with group normalization."""

    kind: Literal["bnp+gn"]


MethodOptions = Annotated[
    Vanilla | BatchNorm | Renorm | LayerNorm | GroupNorm | FourThings | Bnp | BnpGroupNorm,
    Field(discriminator="kind"),
    BeforeValidator(kind_or_table),
]

# --- networks -------------------------------------------------------------------------------


class FullyConnected(Options):
    """Dense layers of the given hidden widths with ReLU, then a dense layer of one output a class."""

    kind: Literal["fc"]
    hidden: Annotated[tuple[Positive, ...], Field(max_length=1000)]

    def sites(self, input_shape: tuple[int, ...], position: Position) -> Iterator[Site]:
        """Where a normalization stands: behind each hidden layer."""
        for number, width in enumerate(self.hidden, start=1):
            yield Site(f"hidden{number}", width)


class Cnn(Options):
    """conv32 - pool - conv64 - pool - conv32 - dense - dense, 3 x 3, valid padding."""

    kind: Literal["cnn"]
    channels: tuple[Positive, Positive, Positive] = (32, 64, 32)
    dense: Positive = 64

    def sites(self, input_shape: tuple[int, ...], position: Position) -> Iterator[Site]:
        """Where a normalization stands: behind each convolution (and its pooling, at ``post``), and the dense layer."""
        sides = input_shape[1:]
        for number, features in enumerate(self.channels, start=1):
            sides = tuple(side - 2 for side in sides)
            pooled = tuple(side // 2 for side in sides) if number < 3 else sides
            yield Site(f"conv{number}", features, prod(pooled if position == "post" else sides))
            sides = pooled
        yield Site("dense", self.dense)


class ResNet(Options):
    """The residual network for CIFAR of depth 6n+2, with option-A shortcuts."""

    kind: Literal["resnet"]
    depth: Annotated[int, Field(ge=8)]
    preactivation: bool = False

    @model_validator(mode="after")
    def _depth_is_6n_plus_2(self) -> Self:
        if (self.depth - 2) % 6:
            raise ValueError(f"depth is 6n+2 (8, 14, 20, 32, 44, 56, 110, ...), not {self.depth}")
        return self

    def sites(self, input_shape: tuple[int, ...], position: Position) -> Iterator[Site]:
        """Where a normalization stands: at each convolution, whatever the position."""
        sides, features = input_shape[1:], 16
        yield Site("conv1", features, prod(sides))
        for stage, width in enumerate((16, 32, 64), start=1):
            for block in range((self.depth - 2) // 6):
                name = f"stage{stage}.{block}"
                if self.preactivation and (stage > 1 or block):
                    yield Site(f"the input of {name}", features, prod(sides))
                if stage > 1 and block == 0:  # begins with a stride of 2
                    sides = tuple(ceil(side / 2) for side in sides)
                features = width
                yield Site(f"{name}.conv1", width, prod(sides))
                if not self.preactivation:
                    yield Site(f"{name}.conv2", width, prod(sides))
        if self.preactivation:
            yield Site(f"{name}.conv2", features, prod(sides))


class ResNet18(Options):
    """torchvision's ResNet-18 for 224 x 224 images."""

    kind: Literal["resnet18"]

    def sites(self, input_shape: tuple[int, ...], position: Position) -> Iterator[Site]:
        """Where a normalization stands: behind each convolution, whatever the position; a stage's have one name."""
        sides = tuple(ceil(side / 2) for side in input_shape[1:])
        yield Site("a convolution of 64 channels", 64, prod(sides))
        for width in (64, 128, 256, 512):  # behind a pooling, or begun by a convolution, with a stride of 2
            sides = tuple(ceil(side / 2) for side in sides)
            for _ in range(4 if width == 64 else 5):  # shortcuts to more channels have one of their own
                yield Site(f"a convolution of {width} channels", width, prod(sides))


NetworkOptions = Annotated[
    FullyConnected | Cnn | ResNet | ResNet18, Field(discriminator="kind"), BeforeValidator(kind_or_table)
]

# --- data -----------------------------------------------------------------------------------


Over = Literal["none", "channel", "pixel"]


class StoredData(Options):
    """A data set of fixed content; its values are in [0, 1] before ``mean`` is taken off and ``std`` divided by."""

    kind: Literal["digits", "mnist", "fashion-mnist", "cifar10", "cifar100"]
    mean: Over = "none"  # of the training examples: of each channel, or of each value of an image (He et al. 2015)
    std: Over = "none"


class Synthetic(Options):
    """Gaussian classes of any shape: a mean per class plus noise, from ``seed``."""

    kind: Literal["synthetic"]
    shape: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=4)] = (64,)
    classes: Annotated[int, Field(ge=2)] = 10
    train: Positive = 2000
    test: Positive = 500
    seed: Annotated[int, Field(ge=0)] = 0


class ImageNet(Options):
    """An image folder in ImageNet's layout (``train/`` and ``val/``, a folder a class)."""

    kind: Literal["imagenet"]
    workers: Annotated[int, Field(ge=0)] = 4
    size: Positive = 224


DatasetOptions = Annotated[
    StoredData | Synthetic | ImageNet, Field(discriminator="kind"), BeforeValidator(kind_or_table)
]

# --- training -------------------------------------------------------------------------------


class Sgd(Options):
    """torch.optim.SGD."""

    kind: Literal["sgd"]
    lr: PositiveFloat
    momentum: Fraction = 0.0
    nesterov: bool = False

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> Self:
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs a momentum above 0")
        return self


class Adam(Options):
    """torch.optim.Adam."""

    kind: Literal["adam"]
    lr: PositiveFloat = 1e-3
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    eps: PositiveFloat = 1e-8


OptimizerOptions = Annotated[Sgd | Adam, Field(discriminator="kind"), BeforeValidator(kind_or_table)]


class Warmup(Options):
    """From ``start`` to the optimizer's learning rate: held constant, or on a line."""

    kind: Literal["constant", "linear"]
    start: PositiveFloat
    iterations: Positive | None = None
    epochs: Positive | None = None

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.iterations is None) == (self.epochs is None):
            raise ValueError("give exactly one of iterations and epochs")
        return self


class Constant(Options):
    """One learning rate, after a warm-up if there is one."""

    kind: Literal["constant"]
    warmup: Warmup | None = None


class Steps(Options):
    """The learning rate times ``factor`` after each of the ``epochs``."""

    kind: Literal["steps"]
    epochs: Annotated[tuple[Positive, ...], Field(min_length=1)]
    factor: Annotated[float, Field(gt=0, lt=1)] = 0.1
    warmup: Warmup | None = None


ScheduleOptions = Annotated[Constant | Steps, Field(discriminator="kind"), BeforeValidator(kind_or_table)]


class Glorot(Options):
    """Glorot uniform weights, zero bias."""

    kind: Literal["glorot"]


class HeNormal(Options):
    """He normal weights (fan in) times ``factor``, zero bias."""

    kind: Literal["he-normal"]
    factor: PositiveFloat = 1.0


InitializationOptions = Annotated[Glorot | HeNormal, Field(discriminator="kind"), BeforeValidator(kind_or_table)]


class WeightDecay(Options):
    """``value`` times the weights: added by the optimizer after preconditioning, or as ``l2`` in the loss before it."""

    value: NonNegativeFloat = 0.0
    where: Literal["optimizer", "l2"] = "optimizer"
