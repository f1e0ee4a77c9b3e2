"""Layerwise convex training: what COLT, MAT and MAAR have in common.

Stage k + 1 freezes the layers up to and including ReLU k, encloses there all activations of the
ball in a zonotope, attacks that (`regions.LatentZonotope`), and trains the layers behind it. With
x'_k a worst point of the region behind ReLU k (k = 0: the ball itself), the loss of a stage is

    natural * CE(z(x), y) + kappa * CE(z(x'_k), y') + (1 - kappa) * CE(z(x'_{k-1}), y')
      + l1 * sum |w|  +  kappa * stability * sum max(-lb, 0) max(ub, 0)

where y' is y (COLT) or the network's own answer (MAT), and kappa grows from 0 to 1 over the first
`mix` epochs of the stage, so that the change from the last stage's loss is gradual; before the
first stage stands natural training, x'_{-1} = x. lb and ub bound the inputs of ReLU k + 1, the
one that the next stage freezes: a neuron that keeps its sign over the whole ball costs the next
zonotope, and later the certifier, nothing. The last stage has no such term.

The paper states neither kappa nor the regularisers; these are those of COLT's public code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maar.attacks.pgd import PGD
from maar.core.eps import Eps
from maar.core.errors import UsageError
from maar.core.settings import AboveZero, Count, NonNegative, OnlyWith, Positive, Unless
from maar.domains.bound import Pair
from maar.domains.cauchy.estimate import Cauchy
from maar.domains.graph import Graph, trace
from maar.methods.base import Batch, Method, Outputs, Stage
from maar.methods.batchnorm import population_statistics
from maar.methods.l1 import l1_norm
from maar.methods.schedules import Constant, Ramp
from maar.methods.stability import instability
from maar.networks import relu_indices, split
from maar.regions import Ball, LatentZonotope, Region


@dataclass(frozen=True)
class LayerwiseStage(Stage):
    """Stage `relu` + 1: the region lies behind ReLU `relu`, counted from 1; 0 is the input."""

    relu: int = 0
    is_last: bool = False


@dataclass(eq=False)
class LayerwiseOutputs(Outputs):
    """Outputs with the labels y' of the adversarial terms and bounds on the next ReLU's inputs."""

    label: Tensor | None = None
    following: Pair | None = None


@dataclass(frozen=True)
class Layerwise(Method):
    """The stages, the attack in each, and the loss above. Subclasses name y'."""

    objective: Literal["paper", "colt"] = "paper"
    """paper: natural and adversarial cross-entropy; colt (its public code): adversarial alone"""
    attack: PGD = field(default_factory=lambda: PGD(steps=8, step_size=0.25))
    """the latent attack in training and on the validation images"""
    mix: NonNegative = 0.0
    """epochs at the start of a stage over which its loss replaces that of the stage before"""
    anneal: Annotated[bool, OnlyWith("mix")] = False
    """let eps grow from 0 over the mix epochs of every stage"""
    eps_factor: AboveZero = 1.05
    """the last stage trains for eps times this"""
    eps_growth: Annotated[AboveZero, Unless("max_stages", 1)] = 1.1
    """each stage before the last trains for this times the radius of the one after it"""
    l1: NonNegative = 1e-5
    """weight of the L1 norm of the weights"""
    stability: NonNegative = 0.005
    """weight of the ReLU-stability term in the first stage"""
    stability_growth: Annotated[AboveZero, OnlyWith("stability"), Unless("max_stages", 1)] = 1.5
    """factor on `stability` from stage to stage"""
    stability_images: Annotated[NonNegative, OnlyWith("stability")] = 1.0
    """part of each batch on which the ReLU-stability term is estimated, in (0, 1]"""
    lr_growth: Annotated[AboveZero, Unless("max_stages", 1)] = 0.75
    """factor on the learning rate from stage to stage"""
    projections: Positive = 50
    """random projections per neuron, where bounds for training are estimated by them"""
    per_group: bool = False
    """one median of them for each group of error terms, as COLT has it; else one over all groups"""
    max_stages: Count = 0
    """stop after this many stages; 0: one for the input and for every ReLU but the last"""
    stage_epochs: tuple[Positive, ...] = ()
    """epochs of each stage in turn, the last number for all further ones; none: epochs"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.stability_images <= 1:
            raise UsageError(f"stability_images = {self.stability_images} (accepted: in (0, 1])")

    def stages(self, net: nn.Sequential, eps: Eps, epochs: int) -> list[Stage]:
        relus = relu_indices(net)
        if not relus:
            raise UsageError("layerwise training needs a network with a ReLU to stop at")
        count = min(self.max_stages or len(relus), len(relus))
        return [self._stage(k, count, relus, eps, epochs) for k in range(count)]

    def _stage(self, k: int, count: int, relus: list[int], eps: Eps, epochs: int) -> LayerwiseStage:
        lengths = self.stage_epochs or (epochs,)
        radius = eps * self.eps_factor * self.eps_growth ** (count - 1 - k)
        return LayerwiseStage(
            name=f"relu {k}" if k else "input",
            epochs=lengths[min(k, len(lengths) - 1)],
            eps=Ramp(0.0, radius, self.mix) if self.anneal else Constant(radius),
            frozen=relus[k - 1] + 1 if k else 0,
            lr_scale=self.lr_growth**k,
            schedules={
                "kappa": Ramp(0.0, 1.0, self.mix),
                "stability": Constant(self.stability * self.stability_growth**k),
            },
            relu=k,
            # The ReLU in front of the logits is not frozen any more, so its stability is not asked.
            is_last=k + 1 >= len(relus),
        )

    def label(self, batch: Batch, outputs: Outputs) -> Tensor:
        """y', what the points of an image's region are to be classified as."""
        raise NotImplementedError

    def outputs(self, batch: Batch) -> LayerwiseOutputs:
        stage, kappa = _stage_of(batch), batch.at.get("kappa", 1.0)
        out = LayerwiseOutputs(batch)
        out.label = self.label(batch, out)
        ball = Ball(batch.x, batch.eps)
        with population_statistics(batch.net):
            pre, out.following = self._bounds(batch, ball)
            for k, (lb, ub) in enumerate(pre, start=1):
                batch.note(**{f"unstable_relu_{k}": ((lb < 0) & (ub > 0)).flatten(1).sum(1)})
            now = self._worst_point(batch, _region(batch.net, ball, pre, stage.relu), out.label)
            before = None
            if kappa < 1 and stage.relu:
                region = _region(batch.net, ball, pre, stage.relu - 1)
                before = self._worst_point(batch, region, out.label)
        out.worst = [(kappa, batch.net[stage.frozen :](now))]
        if before is not None:
            at = relu_indices(batch.net)[stage.relu - 2] + 1 if stage.relu > 1 else 0
            out.worst.append((1 - kappa, batch.net[at:](before)))
        return out

    def terms(self, batch: Batch, outputs: Outputs) -> dict[str, Tensor]:
        assert isinstance(outputs, LayerwiseOutputs)
        assert outputs.label is not None
        stage, kappa = _stage_of(batch), batch.at.get("kappa", 1.0)
        _note_errors(batch, outputs)
        terms: dict[str, Tensor] = {}
        natural = float(self.objective == "paper") + (0.0 if stage.relu else 1 - kappa)
        if natural or (self.mix and not stage.relu):
            terms["natural"] = natural * F.cross_entropy(outputs.nat, batch.y)
        losses = [weight * F.cross_entropy(z, outputs.label) for weight, z in outputs.worst]
        terms["adversarial"] = losses[0]
        if self.mix and stage.relu:
            terms["previous"] = losses[1] if len(losses) > 1 else batch.x.new_zeros(())
        if self.l1:
            terms["l1"] = self.l1 * l1_norm(batch.net)
        if outputs.following is not None:
            lb, ub = outputs.following
            unstable = ((lb < 0) & (ub > 0)).flatten(1).sum(1)
            batch.note(**{f"unstable_relu_{stage.relu + 1}": unstable})
            terms["stability"] = kappa * batch.at["stability"] * instability(lb, ub) / len(lb)
        return terms

    def judge(self, batch: Batch) -> dict[str, Tensor]:
        """Accuracy, and the share that is right and stays right under the stage's attack at eps."""
        clean = super().judge(batch)
        stage, ball = _stage_of(batch), Ball(batch.x, batch.eps)
        with torch.no_grad():
            pre, _ = self._bounds(batch, ball, following=False)
        x_adv = self._worst_point(batch, _region(batch.net, ball, pre, stage.relu), batch.y)
        with torch.no_grad():
            robust = batch.net[stage.frozen :](x_adv).argmax(1) == batch.y
        return {**clean, "robust_accuracy": robust & clean["accuracy"]}

    def _worst_point(self, batch: Batch, region: Region, label: Tensor) -> Tensor:
        e = self.attack(batch.net, region, label, generator=batch.generator)
        with torch.no_grad():
            return region.point(e)

    def _bounds(
        self, batch: Batch, ball: Ball, *, following: bool = True
    ) -> tuple[list[Pair], Pair | None]:
        """Bounds on the inputs of ReLUs 1 to k, and on those of ReLU k + 1 where they are trained.

        One walk through the layers finds them all. Within autocast random projections alone are
        in its precision: the rest are sums of many small terms, from which regions are made.
        """
        device = batch.x.device.type
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            with torch.autocast(device, enabled=False):
                return self._estimates(batch, ball, following, dtype)
        return self._estimates(batch, ball, following, None)

    def _estimates(
        self, batch: Batch, ball: Ball, following: bool, dtype: torch.dtype | None
    ) -> tuple[list[Pair], Pair | None]:
        stage, relus = _stage_of(batch), relu_indices(batch.net)
        cauchy = Cauchy(
            self.projections,
            generator=batch.generator,
            skip_stable=True,
            per_group=self.per_group,
            sampled=True,
            # float16 would not hold Cauchy numbers, which have no largest
            dtype=dtype if dtype == torch.bfloat16 else None,
        )
        next_pair = None
        if following and batch.at.get("stability", 0.0) and not stage.is_last:
            part = max(1, round(self.stability_images * len(batch.x)))
            some = ball if part == len(batch.x) else Ball(batch.x[:part], batch.eps)
            found = cauchy(_graph(batch, relus[stage.relu]), some)
            next_pair = found.lb, found.ub
            if some is ball:
                return [(lb.detach(), ub.detach()) for lb, ub in found.pre], next_pair
        if not stage.relu:
            return [], next_pair
        graph = _graph(batch, relus[stage.relu - 1])
        with torch.no_grad():
            found = cauchy(graph, ball)
        last = [bound.unflatten(1, graph.shapes[-1]) for bound in (found.lb, found.ub)]
        return [*found.pre, (last[0], last[1])], next_pair


def _stage_of(batch: Batch) -> LayerwiseStage:
    # A batch from elsewhere, such as a plain stage of a test, means the input.
    stage = batch.stage
    return stage if isinstance(stage, LayerwiseStage) else LayerwiseStage(stage.name, 1, stage.eps)


def _graph(batch: Batch, stop: int) -> Graph:
    """The layers before `stop`, opened once per stage."""
    key = f"layers before {stop}"
    if key not in batch.memo:
        batch.memo[key] = trace(batch.net[:stop], batch.x.shape[1:])
    return batch.memo[key]


def _region(net: nn.Sequential, ball: Ball, pre: list[Pair], relu: int) -> Region:
    """The region behind a ReLU, counted from 1; the ball for 0."""
    if not relu:
        return ball
    at = relu_indices(net)[relu - 1] + 1
    return LatentZonotope(split(net, at)[0], ball, pre[:relu], at=at)


def _note_errors(batch: Batch, outputs: LayerwiseOutputs) -> None:
    """Accuracy, and the verified error of Appendix A.4: right images that the attack breaks."""
    right = outputs.nat.argmax(1) == batch.y
    broken = outputs.worst[0][1].argmax(1) != batch.y
    batch.note(accuracy=right)
    batch.ratio(verified_error=(right & broken, right))
