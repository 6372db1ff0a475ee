"""Whether a method has a meaning on a network: what building them finds, found from their options."""

from __future__ import annotations

from math import prod

from bnpbench.suite.data import data_shape
from bnpbench.suite.plugins import DatasetPlugin, MethodPlugin, NetworkPlugin
from bnpbench.suite.settings import Settings
from bnpbench.suite.sites import Misfit, Site, no_site, nothing_to_precondition, single_row, single_value
from bnpbench.suite.vocabulary import Bnp, BnpGroupNorm, FullyConnected, GroupNorm, ImageNet, LayerNorm, Position


def misfit(settings: Settings) -> Misfit | None:
    """Why the method of ``settings`` has no meaning on their network at their batch size; None where it has one.

    Also None where only building tells, as it does for a plugin's network.
    """
    network, method = settings.network, settings.method
    if isinstance(network, NetworkPlugin):
        return None
    sites = _sites(settings)
    if not sites and method.normalizes:
        return Misfit(no_site(network.kind, method.kind, isinstance(method, BnpGroupNorm)))
    if not sites and isinstance(method, Bnp) and not method.first_layer:
        return Misfit(nothing_to_precondition(network.kind, method.kind))
    found = [fault for site in sites if (fault := method.undivided(site.layer, site.features))]
    return found[0] if found else next((fault for site in sites if (fault := _one_at_a_time(settings, site))), None)


def unchecked(settings: Settings) -> str | None:
    """What of a setting only building shows, or the data; None where its options tell everything."""
    told = [
        f"{name} {options.kind!r} (a plugin)"
        for name, options, base in (
            ("method", settings.method, MethodPlugin),
            ("network", settings.network, NetworkPlugin),
            ("data set", settings.dataset, DatasetPlugin),
        )
        if isinstance(options, base)
    ]
    if isinstance(settings.dataset, ImageNet):
        told.append("classes and sizes of the image folder")
    return ", ".join(told) or None


def _sites(settings: Settings) -> list[Site]:
    """Where the method puts a normalization, in the order in which they are built."""
    network, method, shape = settings.network, settings.method, data_shape(settings.dataset).input
    position: Position = "pre" if method.kind == "bn-pre" else getattr(method, "position", "post")
    sites = list(network.sites(shape, position))
    if getattr(method, "input", False):
        features, *positions = (prod(shape),) if isinstance(network, FullyConnected) else shape
        sites.append(Site("the input", features, prod(positions)))  # as it is built last
    return sites


def _one_at_a_time(settings: Settings, site: Site) -> Misfit | None:
    method, shares = settings.method, settings.devices
    alone = shares > 1 and not getattr(method, "sync", True)  # each device with its own statistics
    examples = settings.batch_size // shares if alone else settings.batch_size
    if method.smallest_set(site, examples) != 1:
        return None
    where = f"what follows layer {site.layer!r}"
    if isinstance(method, LayerNorm | GroupNorm | BnpGroupNorm):
        return Misfit(single_value(where))
    return Misfit(single_row(where, site.features, examples))
