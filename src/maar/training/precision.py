"""Lower precision for the loss: `torch.autocast` around it, float32 weights and optimiser.

Validation, test and certification are always in float32: a bound refuses to be computed within
autocast.
"""

from __future__ import annotations

from pathlib import Path

import torch

from maar.core.errors import UsageError

DTYPES = {"bf16": torch.bfloat16}
# What a CPU calls its bfloat16 arithmetic: x86 (AVX-512, AMX), ARM.
CPU_BF16 = {"avx512_bf16", "amx_bf16", "bf16"}


def check_precision(precision: str, device: torch.device) -> str:
    """Refuse what the device cannot do; returns a warning about what it does slowly, or ""."""
    if precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        name = torch.cuda.get_device_name(device)
        raise UsageError(f"precision = 'bf16' is not supported by {name} (accepted here: 32)")
    if precision == "bf16" and device.type == "cpu" and not CPU_BF16 & cpu_flags():
        return "this CPU has no bfloat16 arithmetic: precision = 'bf16' is slower than '32' here"
    return ""


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """The context for a loss."""
    return torch.autocast(device.type, DTYPES.get(precision), enabled=precision in DTYPES)


def cpu_flags() -> set[str]:
    """Names of the CPU's abilities as Linux gives them; empty elsewhere."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return set(line.partition(":")[2].split())
    except OSError:
        pass
    return set()
