"""`maar doctor`: what this machine has, what is missing, and the command that gets it.

Each section is a function that returns checks. Only a `broken` check fails the command: an absent
extra or data set is a choice, not a fault.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from maar import __version__
from maar.cli.parse import parse
from maar.core.errors import RunError

if TYPE_CHECKING:
    from rich.console import Console

    from maar.data.published import Published

State = Literal["ok", "absent", "warn", "broken"]

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
    import torch

    from maar.core.machine import cpu_model
    from maar.training.env import resolve_threads

    instructions = torch.backends.cpu.get_cpu_capability()
    checks = [
        _works("cpu", f"{cpu_model()}, {os.cpu_count()} cores, {instructions}"),
        Check(
            "ok", "threads", f"{resolve_threads(0)} (torch's default: {torch.get_num_threads()})"
        ),
        Check("ok", "memory", memory()),
    ]
    for k in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(k)
        size = _size(facts.total_memory)
        checks.append(_works(f"cuda:{k}", f"{facts.name}, {size}, CUDA {torch.version.cuda}"))
    if torch.backends.mps.is_available():
        checks.append(_works("mps", "Apple GPU"))
    if len(checks) == 3:
        checks.append(Check("absent", "GPU", "none that torch can use; the CPU does everything"))
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


def disk() -> list[Check]:
    """Free space where data and runs go, and whether they can go there."""
    from maar.data.published import cache_dir

    checks = []
    for name, folder in {"data": cache_dir(), "runs": Path("runs")}.items():
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        free = shutil.disk_usage(there).free
        state: State = "ok"
        detail = f"{_tilde(folder.absolute())}, {_size(free)} free"
        if free < LOW_DISK:
            state, detail = "warn", f"{detail}: little"
        if not os.access(there, os.W_OK):
            state, detail = "warn", f"{detail}, not writable"
        checks.append(Check(state, name, detail))
    return checks


def data(verify: bool) -> list[Check]:
    """The built-in data sets. By size only unless `verify`, so that the answer comes at once."""
    from maar.data import DATASETS

    checks = []
    for name in DATASETS:
        found: Published = DATASETS[name]
        hashes = verify or found.packaged is not None
        faults = found.faults(hashes=hashes)
        damaged = [fault for fault in faults if not fault.absent or found.packaged]
        if damaged:
            path, reason = _tilde(damaged[0].path), damaged[0].reason
            checks.append(Check("broken", name, f"{path}: {reason}; {found.remedy}"))
        elif faults:
            checks.append(Check("absent", name, found.remedy))
        else:
            how = "content verified" if hashes else "sizes right; `maar doctor --verify` hashes it"
            checks.append(Check("ok", name, f"{_tilde(found.folder)}, {how}"))
    return checks


def solvers() -> list[Check]:
    """Solvers of linear and mixed-integer programs, each tried on a small one."""
    checks = []
    for name, module in SOLVERS.items():
        if util.find_spec(module) is None:
            checks.append(Check("absent", name, _pip(module)))
            continue
        version = f"{module} {metadata.version(module)}"
        try:
            right = _solves(name)
        except Exception as error:  # such as Gurobi without a licence
            checks.append(Check("warn", name, f"{version} does not work: {_line(error)}"))
            continue
        if right:
            checks.append(Check("ok", name, f"{version}, a small program solved"))
        else:
            checks.append(Check("broken", name, f"{version} gives a wrong answer"))
    return checks


def _solves(name: str) -> bool:
    """min -x - y over x + y <= 1.5 with whole x and y in [0, 1]: -1, and -1.5 without "whole"."""
    import numpy as np

    from maar.certification import solvers as known
    from maar.certification.solvers.model import Csr, Model

    ones = np.ones(2)
    model = Model(
        cost=-ones,
        constant=0.0,
        lb=0 * ones,
        ub=ones,
        integral=np.array([True, True]),
        A=Csr.of(ones[None]),
        row_lb=np.array([-np.inf]),
        row_ub=np.array([1.5]),
    )
    solver = known.SOLVERS[name.lower()]()
    return all(
        abs(solver.solve(program, seconds=10).bound - least) < 1e-6
        for program, least in ((model, -1.0), (model.relaxed(), -1.5))
    )


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
        from rich.console import Console
        from rich.text import Text

        args = parse(Doctor, "maar doctor", argv)
    except ImportError as error:
        raise RunError(f"{_line(error)}; {_pip('maar')}") from None
    sections: dict[str, Callable[[], list[Check]]] = {
        "versions": versions,
        "device": device,
        "disk": disk,
        "data": lambda: data(args.verify),
        "solvers": solvers,
        "extras": extras,
    }
    console = Console()
    broken = []
    for title, section in sections.items():
        try:
            checks = section()
        except Exception as error:  # a broken torch or numpy raises anything when imported
            checks = [Check("broken", title, f"{type(error).__name__}: {_line(error)}")]
        _show(console, title, checks)
        broken += [check.name for check in checks if check.state == "broken"]
    if broken:
        console.print(Text.assemble(("\nbroken: ", "bold red"), ", ".join(broken)))
        return 1
    console.print("\n[bold green]everything that maar needs is here[/]")
    return 0


def _show(console: Console, title: str, checks: list[Check]) -> None:
    from rich.text import Text

    from maar.terminal.tables import table

    styles = {"ok": "green", "absent": "dim", "warn": "yellow", "broken": "bold red"}
    shown = table("", "", " ")
    shown.show_header = False
    shown.columns[0].width, shown.columns[1].width = 6, 14
    for check in checks:
        shown.add_row(Text(check.state, styles[check.state]), Text(check.name), Text(check.detail))
    console.print(f"\n[bold]{title}[/]")
    console.print(shown)


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
