"""Settings by name, what `recipe` in a row of `align` stands for: single keys of the row stand above them."""

from __future__ import annotations

from typing import Any

PAPER: dict[str, Any] = dict(
    dropout=0.0, swapped_labels=False, latent_discriminators="both", error="squared", vsp="squared", vsp_of="translations",
    vsp_reflected=False, detach_cycle=False, reduction="sum", cycle_vsp_weight=0.0,
    cycle_statistics=False,
)  # fmt: skip
# Ours, for small machines: one matrix on principal axes, moved by transport, the best of many random starts
MULTISTART: dict[str, Any] = dict(
    centre=True, axes="principal", starts=(64, 12, 3), start_axes=(32, 64, 128), start_steps=25,
    width=384, adapter_depth=0, backbone_depth=0, dropout=0.0, disc_width=128, disc_depth=2,
    transport_weight=1.0, gan="vanilla", gan_weight=0.01, latent_gan_weight=0.0, rec_weight=0.0, vsp_weight=0.0,
    cycle_weight=0.0, cycle_vsp_weight=0.0,
    steps=300, batch=512, optimiser="sgd", lr=10.0, disc_lr=1e-3, warmup=20, warmup_from=1, max_grad_norm=1.0, damping=0.1,
    precision="bf16", log_every=50, min_steps=0, patience=1000,
)  # fmt: skip
RECIPES: dict[str, dict[str, Any]] = {"released": {}, "paper": PAPER, "multistart": MULTISTART}
