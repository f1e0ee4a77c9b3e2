"""The facts of a manifest that a report prints: compared with the network, the data and maar."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import maar
from maar.certification import VERIFIERS
from maar.certification.audit.folder import Folder
from maar.certification.presets import PRESETS, cascade
from maar.certification.solvers import SOLVERS
from maar.core.errors import MaarError
from maar.data import DataSet
from maar.data.address import Address


@dataclass
class Facts:
    """Facts of a manifest that are wrong, and facts that cannot be checked here."""

    wrong: list[str]
    notes: list[str]


def check_facts(folder: Folder, data: DataSet, network: str | None) -> Facts:
    """Compare a manifest's facts; `network` is the name here, None if it was moved."""
    manifest, facts = folder.manifest, Facts([], [])
    size, recorded = data.size(folder.split), manifest.get("network")
    if network is None:
        facts.notes.append(f"the network's name {recorded!r} rests on trust, its weights do not")
    elif recorded != network:
        facts.wrong.append(f"network is {recorded!r}, it is {network!r}")
    if not _same_data(manifest["data"], data.name):
        facts.wrong.append(f"data is {manifest['data']!r}, it is {data.name!r}")
    for fact, here in (
        ("classes", list(data.classes)),
        ("prepared", data.info.note),
    ):
        if manifest.get(fact, here) != here:
            facts.wrong.append(f"{fact} is {manifest[fact]!r}, it is {here!r}")
    if manifest["split"] != folder.split:
        facts.wrong.append(f"split is {manifest['split']!r}, of its subject {folder.split!r}")
    if manifest["images"] != size and folder.frame.is_sealed:
        facts.wrong.append(f"images is {manifest['images']}, {data.name} has {size}")
    if folder.frame.verifiers:
        facts.wrong += _check_verifiers(folder)
    if preset := _preset_fault(folder):
        is_ours = manifest.get("maar") == maar.__version__
        (facts.wrong if is_ours else facts.notes).append(preset)
    return facts


def _same_data(recorded: str, name: str) -> bool:
    """Whether a data set may have both names; one's own is named by a path, which may move."""
    if recorded == name or ":" not in recorded:
        return recorded == name
    one, other = Address.of(recorded), Address.of(name)
    return (one.kind, one.path.name, one.options) == (other.kind, other.path.name, other.options)


def _check_verifiers(folder: Folder) -> Iterator[str]:
    """Compare the names of the verifiers with their settings, which are in the key."""
    names, settings = folder.frame.verifiers, folder.subject["verifiers"]
    if len(names) != len(settings) or len(set(names)) < len(names):
        yield f"verifiers names {len(names)}, its subject {len(settings)}"
        return
    for name, spelled in zip(names, settings, strict=True):
        # (a verifier of somebody's own need not be here)
        if name in VERIFIERS and _class_of(repr(VERIFIERS[name]())) != _class_of(spelled):
            yield f"verifier {name} is {spelled.partition('(')[0]} in its subject"


def _class_of(spelled: str) -> str:
    return spelled.partition("(")[0]


def _preset_fault(folder: Folder) -> str:
    """Return why the verifiers are not those of the preset; another version may differ."""
    preset = folder.manifest.get("preset", "")
    if not preset or not folder.frame.is_sealed:
        return ""
    if preset in PRESETS and folder.subject["verifiers"] in _spellings(preset):
        return ""
    return f"preset {preset!r} of this version does not have the verifiers of its subject"


def _spellings(preset: str) -> list[list[str]]:
    """Return the settings of a preset, with each solver that can be asked for."""
    spelled = [[repr(verifier) for verifier in cascade(preset).verifiers]]
    for solver in SOLVERS:
        try:
            chosen = cascade(preset).with_solver(solver)
        except MaarError:  # not installed, or no verifier has one
            continue
        spelled.append([repr(verifier) for verifier in chosen.verifiers])
    return spelled
