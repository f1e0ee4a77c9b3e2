"""`maar.certify` and `maar.radius`: verdicts and radii for a batch of tensors."""

from __future__ import annotations

import contextlib
import html
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maar.api.tensors import data_of, images_of, labels_of, network_of
from maar.certification.agenda import Job
from maar.certification.cascade import Settled
from maar.certification.display import Display, make_display, result
from maar.certification.inquiry import Inquiry
from maar.certification.radius.run import LARGEST, RADIUS, TOLERANCE, make_radius_plan
from maar.certification.radius.run import TIMEOUT as RADIUS_TIMEOUT
from maar.certification.radius.search import Measured
from maar.certification.run import CERTIFICATION, TIMEOUT, Plan, make_plan
from maar.certification.work import jobs_of, work
from maar.certification.workers import LOCAL, Results, Task, Team
from maar.networks.assembling import as_classifier
from maar.networks.checking import trace
from maar.records.verdicts import Tally


@dataclass(frozen=True)
class ImageVerdict:
    """The verdict on one image, and what it rests on."""

    index: int
    """Position in the batch."""
    label: int
    verdict: str
    """verified, falsified, unknown, misclassified or error."""
    by: str | None
    """The verifier that settled it, or that failed."""
    seconds: float
    """Time in all verifiers."""
    bounds: dict[int, float]
    """Class k -> a proved lower bound of z_y - z_k over the ball."""
    counterexample: Tensor | None
    """[*shape]: a point of the ball with another answer, replayed in two precisions."""
    target: int | None
    """The class that is ahead at the counterexample."""
    margin: float | None
    """z_y - z_target at the counterexample."""
    open: tuple[int, ...]
    """Classes that no verifier settled."""
    error: str
    """Why the computation failed, if it did."""

    def __repr__(self) -> str:
        by = f" by {self.by}" if self.by else ""
        return f"<image {self.index}: {self.verdict}{by}, {self.seconds:.2f} s>"


@dataclass(frozen=True, repr=False)
class CertifyResult(Sequence[ImageVerdict]):
    """Verdicts on a batch. Index it for one image; print it for the table by verifier."""

    images: tuple[ImageVerdict, ...]
    eps: float
    _plan: Plan = field(compare=False)
    _settled: tuple[Settled, ...] = field(compare=False)

    @property
    def verified(self) -> Tensor:
        """Which images are proved to keep their label within eps, bool [n]."""
        return self._are("verified")

    @property
    def falsified(self) -> Tensor:
        """Which images have a counterexample, bool [n]."""
        return self._are("falsified")

    @property
    def unknown(self) -> Tensor:
        """Which images no verifier settled in time, bool [n]."""
        return self._are("unknown")

    @property
    def misclassified(self) -> Tensor:
        """Which images get another answer than their label, bool [n]."""
        return self._are("misclassified")

    @property
    def error(self) -> Tensor:
        """Which images failed, bool [n]; their `error` says why."""
        return self._are("error")

    @property
    def certified(self) -> float:
        """Certified robustness: the share of images that are verified."""
        return self._tally.certified

    @property
    def upper_bound(self) -> float:
        """Upper bound on certified robustness: the share of images that no attack broke."""
        return self._tally.certified_upper

    @property
    def accuracy(self) -> float | None:
        """The share of images that get their label; None if no verifier looked at that."""
        return self._tally.accuracy

    def save(self, folder: str | Path) -> Path:
        """Write the folder that `maar certify` writes, for `maar audit`, `maar report` and others.

        A folder that exists must be about the same question; its verdicts stay.
        """
        return _save(folder, self._plan, CERTIFICATION, self._settled)

    def _are(self, verdict: str) -> Tensor:
        return torch.tensor([image.verdict == verdict for image in self.images])

    @property
    def _tally(self) -> Tally:
        tally = CERTIFICATION.tally(self._plan)
        for record in _records(self._plan, CERTIFICATION, self._settled):
            tally.add(record)
        return tally

    def __len__(self) -> int:
        return len(self.images)

    def __iter__(self) -> Iterator[ImageVerdict]:
        return iter(self.images)

    def __getitem__(self, index: Any) -> Any:
        return self.images[index]

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {name}" for name, n in self._tally.counts.items() if n)
        return f"<CertifyResult of {len(self)} images at eps {self.eps}: {counts}>"

    def __str__(self) -> str:
        return self._rendered()

    def _rendered(self) -> str:
        from rich.console import Console

        text = io.StringIO()
        Console(file=text, width=100, color_system=None).print(result(self._tally))
        return text.getvalue().rstrip()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self._rendered())}</pre>"


def certify(
    model: Any,
    x: Any,
    y: Any,
    eps: Any,
    *,
    preset: str | None = None,
    verifiers: Sequence[str] | None = None,
    solver: str | None = None,
    timeout: float = TIMEOUT,
    workers: int | None = None,
    progress: bool = False,
    classes: Sequence[str] | None = None,
    mask: Any = None,
    span: Any = "auto",
    certificates: bool = False,
) -> CertifyResult:
    """Decide for each image whether any perturbation within eps can change its label.

    Args:
        model: An `nn.Module`, a run, or the name of a run's folder, an ONNX file or `zoo:NAME`.
        x: Images in [0, 1], `[n, *shape]`; a tensor or an array. Verdicts are about its values
            as float32.
        y: Labels, `[n]`.
        eps: L-infinity radius: a number, or text such as "2/255"; or one for each channel or
            feature, or an array that broadcasts to an input.
        preset: `"complete"` (default), `"fast"` or `"paper"`.
        verifiers: Names of verifiers to ask in this order, instead of a preset.
        solver: Solver for mixed-integer programs of verifiers that have any.
        timeout: Seconds for each image, all verifiers together.
        workers: Processes, one thread each (default: one a core, fewer for few images).
        progress: Print a live table.
        classes: Names of the classes, for tables.
        mask: Where inputs move: booleans that broadcast to an input. Everything else is fixed.
        span: Range that inputs keep to: (low, high), numbers or one for each place; None for no
            range. By default [0, 1] for images, and none for the rows of a table, `[n, d]`.
        certificates: Keep a proof of each verdict; `result.save` writes them, for `maar.check`.

    Returns:
        A `CertifyResult`: `result.verified` is a bool tensor, `result[3]` one image's verdict.

    Raises:
        UsageError: If an argument does not fit; the message names it and what is accepted.
    """
    plan = make_plan(
        *_subject(model, x, y, classes, span),
        eps,
        mask=mask,
        preset=preset,
        verifiers=verifiers,
        solver=solver,
        timeout=timeout,
        name=_name(model),
        certificates=certificates,
    )
    display = make_display(CERTIFICATION) if progress else Display[Tally]()
    settled = _settle(plan, CERTIFICATION, workers, display)
    images = tuple(
        ImageVerdict(
            index,
            int(plan.data.y_test[index]),
            each.status.value,
            each.by,
            sum(each.times.values()),
            dict(each.lb),
            None if each.counterexample is None else torch.from_numpy(each.counterexample),
            each.target,
            each.margin,
            tuple(each.open),
            each.error,
        )
        for index, each in enumerate(settled)
    )
    return CertifyResult(images, float(plan.eps), plan, settled)


@dataclass(frozen=True, repr=False)
class RadiusResult:
    """Certified radii of a batch: every image keeps its label up to `lower`, and not at `upper`."""

    lower: Tensor
    """The largest radius that was proved, float64 [n]; 0 where none was."""
    upper: Tensor
    """The distance of the nearest counterexample, float64 [n]; infinity where none was found."""
    verdicts: tuple[str, ...]
    """verified where the two are within the tolerance; unknown, misclassified or error."""
    _plan: Plan = field(compare=False)
    _settled: tuple[Settled, ...] = field(compare=False)

    def save(self, folder: str | Path) -> Path:
        """Write the folder that `maar radius` writes."""
        return _save(folder, self._plan, RADIUS, self._settled)

    def __len__(self) -> int:
        return len(self.lower)

    def __repr__(self) -> str:
        middle = float(self.lower.median()) if len(self) else 0.0
        return f"<RadiusResult of {len(self)} images: median certified radius {middle:.4g}>"


def radius(
    model: Any,
    x: Any,
    y: Any,
    *,
    largest: float = LARGEST,
    tolerance: float = TOLERANCE,
    preset: str | None = None,
    verifiers: Sequence[str] | None = None,
    timeout: float = RADIUS_TIMEOUT,
    workers: int | None = None,
) -> RadiusResult:
    """Find the largest certified radius of each image, by bisection.

    Args:
        model: As for `certify`.
        x: Images in [0, 1], `[n, *shape]`.
        y: Labels, `[n]`.
        largest: Radius to search up to.
        tolerance: Width at which the search ends.
        preset: As for `certify`.
        verifiers: As for `certify`.
        timeout: Seconds for each question; an image has about ten.
        workers: Processes, one thread each.
    """
    plan = make_radius_plan(
        *_subject(model, x, y, None, "auto"),
        largest,
        tolerance=tolerance,
        preset=preset,
        verifiers=verifiers,
        timeout=timeout,
        name=_name(model),
    )
    settled = _settle(plan, RADIUS, workers, Display())
    ends = [each for each in settled if isinstance(each, Measured)]
    return RadiusResult(
        torch.tensor([end.lower for end in ends], dtype=torch.float64),
        torch.tensor(
            [float("inf") if end.upper is None else end.upper for end in ends],
            dtype=torch.float64,
        ),
        tuple(end.status.value for end in ends),
        plan,
        settled,
    )


def _subject(
    model: Any, x: Any, y: Any, classes: Sequence[str] | None, span: Any
) -> tuple[Any, Any]:
    net = as_classifier(network_of(model, x))
    x = images_of(x, net)
    y = labels_of(y, x)
    outputs = math.prod(trace(net, tuple(x.shape[1:]))[-1].shape)
    return net, data_of(x, y, outputs, classes, span=span)


def _name(model: Any) -> str:
    return str(model) if isinstance(model, (str, Path)) else type(model).__name__


def _settle(
    plan: Plan, inquiry: Inquiry[Any], workers: int | None, display: Display[Any]
) -> tuple[Settled, ...]:
    """Settle every image of the plan, in order of the batch."""
    count = len(plan.indices)
    workers = LOCAL.size(count) if workers is None else workers
    tally, settled = inquiry.tally(plan), {}
    display.begin(plan, tally, min(workers, count), 0)
    try:
        with contextlib.closing(
            LOCAL.settle_all(plan.task, jobs_of(plan, plan.indices), workers)
        ) as results:
            for job, each in results:
                settled[job.index] = each
                record = inquiry.record(job.index, job.y, each, plan.task.cascade.timeout)
                tally.add(record)
                display.add(record, tally)
    finally:
        display.end(tally)
    return tuple(settled[index] for index in plan.indices)


def _records(plan: Plan, inquiry: Inquiry[Any], settled: Sequence[Settled]) -> list[dict[str, Any]]:
    labels = plan.data.labels(plan.split, plan.indices).tolist()
    limit = plan.task.cascade.timeout
    rows = zip(plan.indices, labels, settled, strict=True)
    return [inquiry.record(index, label, each, limit) for index, label, each in rows]


def _save(
    folder: str | Path, plan: Plan, inquiry: Inquiry[Any], settled: Sequence[Settled]
) -> Path:
    """Write the folder as `work` does, with verdicts that are known already."""
    known = dict(zip(plan.indices, settled, strict=True))

    def settle_all(task: Task, jobs: Sequence[Job], workers: int) -> Results:
        yield from ((job, known[job.index]) for job in jobs)

    work(plan, inquiry, folder, workers=1, team=Team(lambda images: 1, settle_all))
    return Path(folder)
