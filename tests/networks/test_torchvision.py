"""torchvision's networks by their names."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from bnpbench.errors import SuiteError
from bnpbench.sites import Normalization
from tests.support.kinds import made

NATIVE = Normalization(native=True)


def test_a_resnet_with_the_stem_for_small_images() -> None:
    model = made("network", {"kind": "torchvision", "name": "resnet18", "stem": "cifar"}).built(NATIVE, (3, 32, 32), 7)
    assert (model.conv1.kernel_size, model.conv1.stride, model.conv1.bias) == ((3, 3), (1, 1), None)
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 7)
    assert model.layer1(torch.randn(1, 64, 32, 32)).shape[2:] == (32, 32)
    assert isinstance(model.maxpool, nn.Identity)


def test_options_go_to_its_builder() -> None:
    network = {"kind": "torchvision", "name": "mobilenet_v2", "options": {"width_mult": 0.5}}
    assert made("network", network).built(NATIVE, (3, 32, 32), 7).features[0][1].num_features == 16


def test_another_network_has_no_such_stem() -> None:
    with pytest.raises(ValidationError, match="of ResNets only, and vgg11 is none"):
        made("network", {"kind": "torchvision", "name": "vgg11", "stem": "cifar"})


def test_a_name_that_is_none_is_told_with_the_closest() -> None:
    with pytest.raises(SuiteError, match=r"no classification network 'resnet81' \(did you mean 'resnet18'\?\)"):
        made("network", {"kind": "torchvision", "name": "resnet81"}).built(NATIVE, (3, 32, 32), 7)


def test_it_reads_images_of_three_channels() -> None:
    with pytest.raises(SuiteError, match="reads images of 3 channels; the data set's examples are 1 x 28 x 28"):
        made("network", {"kind": "torchvision", "name": "resnet18"}).built(NATIVE, (1, 28, 28), 7)


def test_one_that_looks_at_its_values_is_built_without_data_too() -> None:
    """RegNets read the widths of their blocks from tensors."""
    with torch.device("meta"):
        model = made("network", {"kind": "torchvision", "name": "regnet_x_400mf"}).built(NATIVE, (3, 32, 32), 7)
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}


@pytest.mark.regression
@pytest.mark.parametrize(("name", "side"), [("googlenet", 32), ("inception_v3", 75)])
def test_it_gives_one_output_in_training(name: str, side: int) -> None:
    network = {"kind": "torchvision", "name": name, "options": {"init_weights": False}}
    assert made("network", network).built(NATIVE, (3, side, side), 7).train()(torch.randn(2, 3, side, side)).shape == (
        2,
        7,
    )
    with pytest.raises(ValidationError, match=r"leave it out, or write options = \{ aux_logits = false \}"):
        made("network", {**network, "options": {"aux_logits": True}})
