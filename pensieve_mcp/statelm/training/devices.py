# mypy: disable-error-code="import-not-found, no-any-return, unused-ignore"
"""Where torch computes: the processor, or a graphics card where torch finds one.

Data, their order and the first values of the matrices are drawn on the processor by seed and are the same everywhere;
sums are rounded differently on a card, so that only one thread of a processor gives the same bytes again.
"""

from __future__ import annotations

import torch

from pensieve_mcp.errors import BackendError

AUTO = "auto"


def device_of(name: str) -> torch.device:
    """The device of this name as torch spells it (`cpu`, `cuda`, `cuda:1`, `mps`); `auto` is CUDA where there is some,
    else the processor. Raises BackendError where torch cannot compute on it.
    """
    if name == AUTO:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, ImportError, AttributeError) as error:  # as the build of torch goes
        reason = str(error).strip().partition("\n")[0]
        raise BackendError(
            f"torch {torch.__version__} cannot compute on {name!r}: {reason}",
            hint="--device cpu computes anywhere; a card needs a build of torch for it.",
            slug="no_device",
        ) from error
    return device
