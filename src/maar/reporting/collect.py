"""What there is to report on: runs, certifications, radii and evaluations found below some paths.

    RUN                  config.toml, metrics.jsonl, result.json, env.json
      certify/eps-…/     manifest.json, verdicts.jsonl, counterexamples/, summary.json
      radius-…/          manifest.json, radii.jsonl, counterexamples/, summary.json
      evaluate-….json    latent robustness
    certs/NAME           the same three of a network without a run
    NAME.json            an experiment of `maar reproduce`

Nothing here knows how a report looks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from maar.core.errors import MaarError, UsageError
from maar.core.seals import file_seal
from maar.records.evaluations import Evaluation, read_evaluations
from maar.records.radii import RADII, RadiusTally
from maar.records.reading import Object, Reader, count, number, word, words
from maar.records.runs import CONFIG, RunFiles, read_run
from maar.records.stores import EVIDENCE, MANIFEST, VERDICT_LINES, Manifest, Stored, read_manifest
from maar.records.verdicts import Tally

CERTIFICATES = "certificates"
"""A folder in a certification's, whose manifest is one of certificates."""


@dataclass(frozen=True, eq=False)
class Store(Manifest):
    """A certification or a search of radii, counted from its lines."""

    path: Path
    lines: dict[int, Object]
    """By index of the image."""
    summary: Object
    """What the lines add up to."""
    last_seal: str
    """Of the last line; the key, where there are no seals."""

    @property
    def images(self) -> int:
        """How many were asked for."""
        return count(self.summary, "images")

    @property
    def is_complete(self) -> bool:
        """Whether every image that was asked for has an answer."""
        return self.summary.get("complete") is True

    @property
    def seconds(self) -> float:
        """Of all verifiers."""
        return number(self.summary, "seconds") or 0.0

    def counterexample(self, index: int) -> Path:
        """Where that of an image is, or would be."""
        return self.path / "counterexamples" / f"{index}.npz"


@dataclass(frozen=True, eq=False)
class Run(RunFiles):
    """The folder of a run, or, without a configuration, what is known of one network.

    Its state is "" for a network without a run.
    """

    name: str = ""
    certifications: tuple[Store, ...] = ()
    radii: tuple[Store, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()

    @property
    def data(self) -> str:
        """The data set's name."""
        found = [store.data for store in (*self.certifications, *self.radii)]
        return word(self.config, "data") or (found[0] if found else "")

    @property
    def seed(self) -> int | None:
        """Of its randomness."""
        seed = self.config.get("seed")
        return seed if isinstance(seed, int) else None

    @property
    def hardware(self) -> str:
        """What it was trained on."""
        device = word(self.env, "gpu") or word(self.env, "cpu")
        threads = count(self.env, "threads")
        return f"{device}, {threads} thread{'s' * (threads != 1)}" if device and threads else device

    @property
    def command(self) -> str:
        """That trained it, for people."""
        found = words(self.env, "command")
        return " ".join(("maar", *found[1:])) if found else ""


@dataclass(frozen=True)
class Collected:
    """Everything that was found."""

    runs: tuple[Run, ...]
    experiments: tuple[tuple[Path, Object], ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def certifications(self) -> list[Store]:
        """Of all runs."""
        return [store for run in self.runs for store in run.certifications]

    @property
    def radii(self) -> list[Store]:
        """Of all runs."""
        return [store for run in self.runs for store in run.radii]


def collect(paths: Sequence[Path]) -> Collected:
    """Read what is below the paths; one with nothing in it is a `UsageError`."""
    reader = Reader()
    runs: dict[Path, Run] = {}
    stores: dict[Path, Store] = {}
    experiments: dict[Path, Object] = {}
    for path in paths:
        if path.is_file() and path.suffix == ".json":
            experiments[path.resolve()] = reader.json(path)
            continue
        if not path.is_dir():
            raise UsageError(f"{path} is neither a folder nor the JSON file of an experiment")
        of_runs, of_stores = _find(path)
        results = [] if of_runs or of_stores else _results(path)
        experiments |= {file.resolve(): reader.json(file) for file in results}
        if not of_runs and not of_stores and not results:
            raise UsageError(
                f"{path} holds nothing to report on (accepted: the folder of a run, a folder of "
                "runs, the results of maar certify or maar radius, a JSON of maar reproduce or a "
                "folder of them)"
            )
        for folder in of_runs:
            if folder.resolve() not in runs:
                runs[folder.resolve()] = _run(folder, reader)
        for folder in of_stores:
            store = None if folder.resolve() in stores else _store(folder, reader)
            if store is not None:
                stores[folder.resolve()] = store
    named = _name([*runs.values(), *_networks(list(stores.values()), reader)])
    return Collected(tuple(named), tuple(experiments.items()), tuple(reader.problems))


def _results(path: Path) -> list[Path]:
    """The experiments of `maar reproduce` in a folder of its results."""
    files = sorted(path.glob("*.json"))
    return [file for file in files if isinstance(Reader().json(file).get("rows"), list)]


def _find(path: Path) -> tuple[list[Path], list[Path]]:
    """The folders of runs at any depth, and those of stores that are in no run."""
    runs, stores = [], []
    for where, folders, files in os.walk(path):
        found = {CONFIG: runs, MANIFEST: stores}
        for file, kind in found.items():
            if file in files:
                kind.append(Path(where))
                folders.clear()  # what is below belongs to it
                break
        folders.sort()
    return runs, stores


def _run(path: Path, reader: Reader) -> Run:
    run = read_run(path)
    reader.problems += run.problems
    folders = [manifest.parent for manifest in sorted(path.glob(f"**/{MANIFEST}"))]
    folders = [folder for folder in folders if folder.name != CERTIFICATES]
    stores = [store for folder in folders if (store := _store(folder, reader))]
    return _with(Run(**vars(run), name=path.resolve().name), stores, read_evaluations(path, reader))


def _networks(stores: list[Store], reader: Reader) -> list[Run]:
    """Stores that are in no run, put together where they are about the same weights."""
    by_weights: dict[str, list[Store]] = {}
    for store in stores:
        by_weights.setdefault(store.hash, []).append(store)
    found = []
    for hash, same in by_weights.items():
        folders = dict.fromkeys(store.path.parent for store in same)
        files = [file for folder in folders for file in read_evaluations(folder, reader)]
        ours = [file for file in files if file.weights_hash == hash]
        found.append(_with(Run(same[0].path, "", name=same[0].network), same, ours))
    return found


def _with(run: Run, stores: list[Store], evaluations: Iterable[Evaluation]) -> Run:
    return replace(
        run,
        certifications=tuple(store for store in stores if "eps" in store.summary),
        radii=tuple(store for store in stores if "largest" in store.summary),
        evaluations=tuple(evaluations),
    )


def _store(path: Path, reader: Reader) -> Store | None:
    tell = reader.problems.append
    try:
        manifest = read_manifest(path, lambda fault: None)
        is_radius = "largest" in manifest.subject
        stored = (RADII if is_radius else VERDICT_LINES).read(path, tell)
    except (MaarError, OSError) as error:
        tell(str(error))
        return None
    if not manifest.is_sealed:
        tell(f"{path} is of a format without seals: an edit by hand would not show here")
    for line in stored.records.values():
        file, seal = stored.counterexample(line["index"]), word(line, EVIDENCE)
        if seal and file.is_file() and file_seal(file.read_bytes()) != seal:
            tell(f"{file} is not the counterexample that its line names")
    name = "largest" if is_radius else "eps"
    summary = {name: number(manifest.subject, name) or 0.0, **_counted(stored, is_radius)}
    about = vars(manifest)
    if moves := word(manifest.content, "moves"):  # never to be taken for one eps in [0, 1]
        about = {**about, "data": f"{manifest.data}, {moves}"}
    last = stored.seals[-1]
    return Store(**about, path=path, lines=stored.records, summary=summary, last_seal=last)


def _counted(stored: Stored, is_radius: bool) -> Object:
    """Count the lines, whatever summary.json says: it may be of a call that looked at a few."""
    records, about = stored.records, stored.manifest
    if not records:
        return {"images": 0, "complete": False}
    if is_radius:
        tally = RadiusTally(len(records), about.of)
        for record in records.values():
            tally.add(record)
    else:
        tally = Tally.of_all(records.values(), about.of, about.verifiers)
    if about.asked is None:
        is_complete = stored.summary.get("images") == len(records)
    else:
        is_complete = about.asked <= records.keys()
    return {**tally.summary(), "complete": is_complete}


def _name(runs: list[Run]) -> list[Run]:
    """Runs of the same name in different folders get as much of their path as tells them apart."""
    parts = 1
    names = [run.name for run in runs]
    while len(set(names)) < len(names) and parts < 20:
        parts += 1
        double = {name for name in names if names.count(name) > 1}
        longer = ["/".join(run.path.resolve().parts[-parts:]) for run in runs]
        names = [long if name in double else name for name, long in zip(names, longer, strict=True)]
    # A folder need not be named in UTF-8: what is not becomes a sign for that.
    names = [os.fsencode(name).decode(errors="replace") for name in names]
    return [replace(run, name=name) for run, name in zip(runs, names, strict=True)]
