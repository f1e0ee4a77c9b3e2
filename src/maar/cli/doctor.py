"""`maar doctor`: what this machine has, what is missing, and the command that gets it.

Each section is a function that returns checks; only a `broken` check fails the command, since an
absent extra or data set is a choice, not a fault.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from maar import __version__
from maar.errors import RunError

if TYPE_CHECKING:
    from rich.console import Console

State = Literal["ok", "absent", "broken"]

# Mixed-integer solvers by name, and the module (also the distribution) that brings each.
SOLVERS = {"SCIP": "pyscipopt", "HiGHS": "highspy", "Gurobi": "gurobipy"}

LOW_DISK = 1 << 30


@dataclass(frozen=True)
class Check:
    """One line of the answer."""

    state: State
    name: str
    detail: str


@dataclass(frozen=True)
class Requirement:
    """One line of the package's own metadata, such as `rich>=13` or `onnx>=1.16` of extra onnx."""

    name: str
    floor: str
    extra: str
    conditional: bool  # has a further marker, such as python_version < "3.11"


def requirements() -> list[Requirement]:
    """What maar declares to need, read from its metadata so that this list cannot drift."""
    found = []
    for line in metadata.requires("maar") or []:
        spec, _, marker = line.partition(";")
        name = re.match(r"[\w.-]+", spec.strip())
        floor = re.search(r">=\s*([\d.]+)", spec)
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
        rest = re.sub(r"extra == ['\"][\w-]+['\"]", "", marker).strip(" ()and")
        if name:
            found.append(
                Requirement(
                    name=name[0],
                    floor=floor[1] if floor else "0",
                    extra=extra[1] if extra else "",
                    conditional=bool(rest),
                )
            )
    return found


def installed(requirement: Requirement) -> str | None:
    """The installed version, or None if the distribution is absent."""
    try:
        return metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return None


def at_least(version: str, floor: str) -> bool:
    """Compare the leading numbers of two versions: 2.13.0+cpu is at least 2.2."""

    def numbers(text: str) -> list[int]:
        return [int(part) for part in re.findall(r"\d+", text.partition("+")[0])]

    return numbers(version) >= numbers(floor)


def versions() -> list[Check]:
    """maar, Python, and each core dependency against its floor."""
    checks = [
        Check("ok", "maar", f"{__version__} in {_tilde(Path(__file__).parents[1])}"),
        Check("ok", "Python", f"{platform.python_version()} ({_tilde(Path(sys.executable))})"),
    ]
    for need in requirements():
        if need.extra:
            continue
        version = installed(need)
        if version is None:
            if not need.conditional:
                checks.append(Check("broken", need.name, f"absent; {_pip(need.name)}"))
        elif not at_least(version, need.floor):
            command = _pip(f"{need.name}>={need.floor}")
            checks.append(Check("broken", need.name, f"{version} is too old; {command}"))
        else:
            checks.append(Check("ok", need.name, version))
    return checks


def device() -> list[Check]:
    """Processor, memory, threads and accelerators, with one small computation on each."""
    checks = [
        Check("ok", "processor", f"{cpu_model()}, {os.cpu_count()} cores"),
        Check("ok", "memory", memory()),
    ]
    try:
        import torch
    except Exception as error:  # a broken torch raises anything: ImportError, OSError, RuntimeError
        return [*checks, Check("broken", "torch", f"cannot be imported: {_line(error)}")]
    capability = torch.backends.cpu.get_cpu_capability()
    checks.append(Check("ok", "threads", f"{torch.get_num_threads()} for torch, {capability}"))
    if torch.cuda.is_available():
        for k in range(torch.cuda.device_count()):
            facts = torch.cuda.get_device_properties(k)
            detail = f"{facts.name}, {_size(facts.total_memory)}"
            checks.append(_works(f"cuda:{k}", f"{detail}, CUDA {torch.version.cuda}"))
    elif torch.backends.mps.is_available():
        checks.append(_works("mps", "Apple GPU"))
    else:
        checks.append(Check("absent", "GPU", "none that torch can use; the CPU does everything"))
    checks.append(_works("cpu", "computes"))
    return checks


def _works(name: str, detail: str) -> Check:
    import torch

    try:
        one = torch.ones(8, 8, device=name)
        if float((one @ one).sum()) != 512:
            return Check("broken", name, f"{detail}: a product of ones is not what it should be")
    except RuntimeError as error:
        return Check("broken", name, f"{detail}: {_line(error)}")
    return Check("ok", name, detail)


def cpu_model() -> str:
    """The processor's name as people know it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return model[1] if model else platform.processor() or platform.machine()


def memory() -> str:
    """Physical memory, and how much of it is free to take."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="utf-8")
        kilobytes = {key: int(n) for key, n in re.findall(r"^(\w+):\s+(\d+) kB", text, re.M)}
        total, free = kilobytes["MemTotal"] << 10, kilobytes["MemAvailable"] << 10
        return f"{_size(total)}, {_size(free)} available"
    except (OSError, KeyError):
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        return _size(pages * size)


def disk(folders: dict[str, Path]) -> list[Check]:
    """Free space where data and runs go."""
    checks = []
    for name, folder in folders.items():
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        free = shutil.disk_usage(there).free
        detail = f"{_tilde(folder)}, {_size(free)} free"
        if not os.access(there, os.W_OK):
            checks.append(Check("broken", name, f"{detail}, not writable"))
        else:
            low = free < LOW_DISK
            checks.append(Check("broken" if low else "ok", name, detail + (", low" if low else "")))
    return checks


def solvers() -> list[Check]:
    """Mixed-integer solvers: none is needed by anything but the exact verifier."""
    checks = []
    for name, module in SOLVERS.items():
        if util.find_spec(module) is None:
            checks.append(Check("absent", name, _pip(module)))
        else:
            checks.append(Check("ok", name, f"{module} {metadata.version(module)}"))
    return checks


def extras() -> list[Check]:
    """Every extra that the package declares, complete or with the command that completes it."""
    needs: dict[str, list[Requirement]] = {}
    for need in requirements():
        if need.extra and not need.conditional:
            needs.setdefault(need.extra, []).append(need)
    checks = []
    for extra, wanted in needs.items():
        versions = {need.name: installed(need) for need in wanted}
        lacking = [name for name, version in versions.items() if version is None]
        if lacking:
            detail = f"lacks {', '.join(lacking)}; {_pip(f'maar[{extra}]')}"
            checks.append(Check("absent", extra, detail))
        else:
            listed = ", ".join(f"{name} {version}" for name, version in versions.items())
            checks.append(Check("ok", extra, listed))
    return checks


@dataclass(frozen=True)
class Doctor:
    """Tell what this machine has and what is missing."""

    verify: bool = False
    """Read every data file and compare its content with the known hash."""


def main(argv: Sequence[str]) -> int:
    """Print every section; 0 if nothing that maar needs is broken."""
    try:
        import tyro
        from rich.console import Console
    except ImportError as error:
        raise RunError(f"{_line(error)}; {_pip('maar')}") from None

    args = tyro.cli(Doctor, prog="maar doctor", args=argv)
    console = Console()
    checks = [check for section in _sections(args.verify) for check in _show(console, *section)]
    broken = [check.name for check in checks if check.state == "broken"]
    if broken:
        console.print(f"\n[bold red]broken:[/] {', '.join(broken)}")
        return 1
    console.print("\n[bold green]everything that maar needs is here[/]")
    return 0


def _sections(verify: bool) -> Iterator[tuple[str, list[Check]]]:
    yield "versions", versions()
    yield "device", device()
    yield "disk", disk({"runs": Path("runs")})
    yield "solvers (for the exact verifier)", solvers()
    yield "extras", extras()


def _show(console: Console, title: str, checks: list[Check]) -> list[Check]:
    from rich.table import Table
    from rich.text import Text

    styles = {"ok": "green", "absent": "yellow", "broken": "bold red"}
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(width=6)
    table.add_column(width=14)
    table.add_column(overflow="fold")
    for check in checks:
        table.add_row(Text(check.state, styles[check.state]), Text(check.name), Text(check.detail))
    console.print(f"\n[bold]{title}[/]")
    console.print(table)
    return checks


def _pip(what: str) -> str:
    """The exact command for the environment that maar runs in."""
    pip = shutil.which("pip")
    ours = pip and Path(pip).parent == Path(sys.executable).parent
    return f"get it: {'pip' if ours else f'{_tilde(Path(sys.executable))} -m pip'} install '{what}'"


def _tilde(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _size(n: int) -> str:
    return f"{n / (1 << 30):.1f} GB"


def _line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
