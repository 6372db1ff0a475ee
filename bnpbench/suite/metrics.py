"""What a claim or a reference may speak of: the numeric columns of the results, and times to a target."""

from __future__ import annotations

EPOCHS = frozenset(
    [
        "train_loss",
        "train_accuracy",
        "validation_accuracy",
        "test_loss",
        "test_accuracy",
        "learning_rate",
        "steps",
        "examples",
        "train_seconds",
        "evaluation_seconds",
        "other_seconds",
        "step_seconds_median",
        "step_seconds_p90",
        "energy_joules",
    ]
)
CELLS = frozenset(
    [
        "parameters",
        "flops_model",
        "flops_method_predicted",
        "flops_method_counted",
        "flops_method_executed",
        "flops_method_products",
        "bytes_per_step",
        "operators_per_step",
        "kernels_per_step",
        "peak_memory_bytes",
        "setup_seconds",
        "warmup_seconds",
        "compile_seconds",
        "wall_seconds",
        "cache_hits",
        "cache_misses",
        "train_examples",
        "last_batch",
        "clock_mhz_before",
        "clock_mhz_after",
    ]
)
STEPS = frozenset(
    [
        "kappa_hessian",
        "kappa_preconditioned",
        "kappa_gain",
        "kappa_d",
        "gain_over_kappa_d_squared",
        "rank",
        "gap",
        "live_features",
        "live_rows",
    ]
)
TARGETS = frozenset({"seconds_to", "epochs_to", "reached"})
METRICS = EPOCHS | CELLS | STEPS | TARGETS

TIMES = frozenset(
    {"train_seconds", "evaluation_seconds", "other_seconds", "step_seconds_median", "step_seconds_p90"}
    | {"energy_joules"}
)
"""Metrics of an epoch that are taken over all epochs unless a claim says otherwise."""


def table_of(metric: str) -> str:
    """``epochs``, ``cells``, ``steps`` or ``targets``: where a metric comes from.

    ``energy_joules`` stands in two tables; a claim means the energy of an epoch.
    """
    tables = {"epochs": EPOCHS, "cells": CELLS, "steps": STEPS, "targets": TARGETS}
    return next(name for name, columns in tables.items() if metric in columns)
