"""Forgeries of a folder: who notices each, with seals left as they were and with seals made anew.

    pytest -s tests/certification/audit/test_forgeries.py   prints the table

A careless forger edits files by hand. A thorough one has maar's code: keys, seals, hashes of files
and the summary fit again. Against the careless one, whoever opens the folder must notice. Against
the thorough one the audit must notice, or count the verdict among those that rest on trust; or
what is left is true, such as fewer images.
"""

import contextlib
import copy
import dataclasses
import hashlib
import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from maar.certification import VERIFIERS as REGISTERED
from maar.certification.audit.folder import read_folder
from maar.certification.merge import merge
from maar.certification.run import make_plan, run
from maar.certification.verdict import UNKNOWN
from maar.certification.verifiers.milp import Milp
from maar.core.errors import MaarError
from maar.core.seals import file_seal
from maar.records.stores import key_of
from maar.reporting.collect import collect

VERIFIERS = ["misclassified", "quick_pgd", "crown", "alpha_crown", "milp"]
FORGERIES = {}
EPS = 0.06
# Of mnist_mini: few images with all verdicts, and then six more.
CHOSEN = [8, 1, 4, 0, 2, 11, 18]
MORE = [3, 7, 15, 20, 9, 10]
IMAGES = len(CHOSEN)


def forgery(name, *, thorough="caught", careless="caught"):
    """Register one; `thorough` is what the audit makes of it when everything fits again."""

    def register(forge):
        assert name not in FORGERIES
        FORGERIES[name] = (forge, careless, thorough)
        return forge

    return register


def asked_of(by):
    times = dict.fromkeys(VERIFIERS[: VERIFIERS.index(by) + 1], 0.25)
    return {"times": times, "seconds": 0.25 * len(times)}


def rivals(line):
    return [k for k in range(10) if k != line["label"]]


class Forger:
    """A folder to forge."""

    def __init__(self, name, path, net, data):
        self.name, self.path, self.net, self.data = name, path, net, data
        self.manifest = json.loads((path / "manifest.json").read_text())
        self.lines = [json.loads(x) for x in (path / "verdicts.jsonl").read_text().splitlines()]
        self.summary = json.loads((path / "summary.json").read_text())
        self.tail = b""

    def one(self, verdict):
        return next(line for line in self.lines if line["verdict"] == verdict)

    def point(self, line):
        return self.path / "counterexamples" / f"{line['index']}.npz"

    def rewrite(self, line, **arrays):
        with np.load(self.point(line)) as file:
            content = dict(file)
        np.savez(self.point(line), **{**content, **arrays})

    def write(self, store):
        """Write everything by hand; `store`, if given, lets keys, hashes, seals and sums fit."""
        text = "".join(json.dumps(line) + "\n" for line in self.lines)
        (self.path / "verdicts.jsonl").write_text(text)
        (self.path / "manifest.json").write_text(json.dumps(self.manifest))
        (self.path / "summary.json").write_text(json.dumps(self.summary))
        if store is not None:
            self._write_anew(store)
        with open(self.path / "verdicts.jsonl", "ab") as file:
            file.write(self.tail)

    def _write_anew(self, store):
        about = {"format": self.manifest["format"], **self.manifest["subject"]}
        key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
        store.change_manifest(**{**self.manifest, "key": key})
        for line in self.lines:
            if line.get("verdict") == "falsified" and self.point(line).exists():
                line["counterexample"] = file_seal(self.point(line).read_bytes())
        if "summary" in self.name:
            store.change_summary()
            return
        subject = {name: self.manifest["subject"][name] for name in ("eps", "weights")}
        store.change_summary(key=key, **subject)
        store.write(self.lines)
        with contextlib.suppress(KeyError, TypeError):  # lines that nobody can count
            store.recount()
        store.write(self.lines)


# Verdicts


@forgery("unknown becomes verified, by a bound")
def _(f):
    f.one("unknown").update(verdict="verified", by="alpha_crown", lb=0.1, **asked_of("alpha_crown"))


@forgery("unknown becomes verified, by a complete verifier", thorough="on trust")
def _(f):
    f.one("unknown").update(verdict="verified", by="milp", lb=1e-6, **asked_of("milp"))


@forgery("falsified becomes verified")
def _(f):
    line = f.one("falsified")
    line.update(verdict="verified", by="milp", lb=0.1, **asked_of("milp"))
    f.point(line).unlink()


@forgery("misclassified becomes verified")
def _(f):
    f.one("misclassified").update(verdict="verified", by="milp", lb=0.1, **asked_of("milp"))


@forgery("falsified becomes unknown")
def _(f):
    line = f.one("falsified")
    line.update(verdict="unknown", by=None, open=rivals(line), limit=9.0, **asked_of("milp"))


@forgery("falsified becomes unknown, its file is deleted", thorough="noted")
def _(f):
    line = f.one("falsified")
    line.update(verdict="unknown", by=None, open=rivals(line), limit=9.0, **asked_of("milp"))
    f.point(line).unlink()


@forgery("falsified becomes misclassified")
def _(f):
    line = f.one("falsified")
    line.update(verdict="misclassified", by="misclassified", **asked_of("misclassified"))


@forgery("misclassified becomes falsified")
def _(f):
    line = f.one("misclassified")
    x = f.data.images("test", [line["index"]])[0].numpy()
    arrays = {"x": x, "x_adv": x, "label": line["label"], "target": line["target"]}
    np.savez(f.point(line), **arrays)
    line.update(verdict="falsified", by="quick_pgd", **asked_of("quick_pgd"))


@forgery("verified becomes falsified")
def _(f):
    line, other = f.one("verified"), f.one("falsified")
    shutil.copy(f.point(other), f.point(line))
    more = {"margin": -0.1, "target": rivals(line)[0], "counterexample": "0" * 16}
    line.update(verdict="falsified", by="quick_pgd", **more, **asked_of("quick_pgd"))


@forgery("verified becomes misclassified")
def _(f):
    line = f.one("verified")
    more = {"margin": -0.1, "target": rivals(line)[0], **asked_of("misclassified")}
    line.update(verdict="misclassified", by="misclassified", **more)


@forgery("verified becomes unknown", thorough="noted")
def _(f):
    line = f.one("verified")
    line.update(verdict="unknown", by=None, open=rivals(line), limit=9.0, **asked_of("milp"))
    del line["lb"]


@forgery("verified by an attack")
def _(f):
    f.one("verified").update(by="quick_pgd", **asked_of("quick_pgd"))


@forgery("verified by a verifier that is not in the manifest")
def _(f):
    line = f.one("verified")
    line.update(by="bab", times={**line["times"], "bab": 1.0}, seconds=line["seconds"] + 1)


@forgery("a verdict that does not exist")
def _(f):
    f.one("verified")["verdict"] = "certified"


# Numbers


@forgery("a bound raised by 10 %")
def _(f):
    f.one("verified")["lb"] *= 1.1


@forgery("a bound above any margin")
def _(f):
    f.one("verified")["lb"] = 1e6


@forgery("a bound of zero")
def _(f):
    f.one("verified")["lb"] = 0.0


@forgery("a bound that is infinite")
def _(f):
    f.one("verified")["lb"] = float("inf")


@forgery("a bound that is NaN")
def _(f):
    f.one("verified")["lb"] = float("nan")


@forgery("open emptied")
def _(f):
    f.one("unknown")["open"] = []


@forgery("an open class replaced by a proved one", thorough="on trust")
def _(f):
    line = f.one("unknown")
    line["open"] = [next(k for k in rivals(line) if k not in line["open"])]


@forgery("the label changed")
def _(f):
    line = f.one("verified")
    line["label"] = rivals(line)[0]


@forgery("the margin of a counterexample changed")
def _(f):
    f.one("falsified")["margin"] *= 2


@forgery("the target of a counterexample changed")
def _(f):
    line = f.one("falsified")
    line["target"] = next(k for k in rivals(line) if k != line["target"])


@forgery("negative seconds")
def _(f):
    line = f.one("verified")
    line["times"] = dict.fromkeys(line["times"], -1.0)
    line["seconds"] = -1.0 * len(line["times"])


@forgery("seconds that are not those of the verifiers")
def _(f):
    f.one("verified")["seconds"] = 0.0001
    f.one("verified")["times"]["crown"] = 5.0


@forgery("less time than it took", thorough="true")
def _(f):
    line = f.one("verified")
    line.update(times=dict.fromkeys(line["times"], 0.0), seconds=0.0)


# Counterexamples


@forgery("a counterexample outside the ball")
def _(f):
    line = f.one("falsified")
    with np.load(f.point(line)) as file:
        point = file["x_adv"].copy()
    point.flat[300] += 0.15 if point.flat[300] < 0.5 else -0.15
    f.rewrite(line, x_adv=point)


@forgery("a counterexample that is none")
def _(f):
    line = f.one("falsified")
    f.rewrite(line, x_adv=f.data.images("test", [line["index"]])[0].numpy())


@forgery("a counterexample of another image")
def _(f):
    line, other = (line for line in f.lines if line["verdict"] == "falsified")
    shutil.copy(f.point(other), f.point(line))


@forgery("a counterexample deleted")
def _(f):
    f.point(f.one("falsified")).unlink()


@forgery("a counterexample whose label is no number")
def _(f):
    f.rewrite(f.one("falsified"), label=np.array([0.5, np.nan]))


# Lines


@forgery("the index is a boolean")
def _(f):
    next(line for line in f.lines if line["index"] == 1)["index"] = True


@forgery("the index is a float")
def _(f):
    f.lines[0]["index"] = float(f.lines[0]["index"])


@forgery("the index is negative")
def _(f):
    f.lines[0]["index"] = -1


@forgery("the index is beyond the data set")
def _(f):
    f.lines[0]["index"] = 5000


@forgery("a line twice")
def _(f):
    f.lines.append(dict(f.one("verified")))


@forgery("a verified image called unknown by a second line")
def _(f):
    line = f.one("verified")
    more = {"verdict": "unknown", "by": None, "open": rivals(line), "limit": 9.0}
    f.lines.append({**line, **more, **asked_of("milp")})


@forgery("a falsified image called verified by a second line")
def _(f):
    f.lines.append(
        {**f.one("falsified"), "verdict": "verified", "by": "milp", "lb": 0.1, **asked_of("milp")}
    )


@forgery("a line deleted", thorough="noted")
def _(f):
    f.lines.remove(f.one("falsified"))


@forgery("the last lines deleted", thorough="noted")
def _(f):
    del f.lines[-3:]


@forgery("the last lines deleted and asked for no more", thorough="true")
def _(f):
    f.lines.sort(key=lambda line: line["index"])
    del f.lines[-3:]
    f.manifest["asked"] = f"0-{len(f.lines) - 1}"


@forgery("lines in another order", thorough="true")
def _(f):
    f.lines.reverse()


@forgery("six images that were never computed")
def _(f):
    line = f.one("verified")
    f.lines += [{**line, "index": i, "label": label_of(f, i)} for i in range(IMAGES, IMAGES + 6)]


@forgery("six images that were never computed, asked for", thorough="on trust")
def _(f):
    line = {**f.one("verified"), "by": "milp", "lb": 1e-6, **asked_of("milp")}
    f.lines += [{**line, "index": i, "label": label_of(f, i)} for i in range(IMAGES, IMAGES + 6)]
    f.manifest["asked"] = f"0-{IMAGES + 5}"


def label_of(f, index):
    return int(f.data.labels("test", [index])[0])


@forgery("a line that is no JSON")
def _(f):
    f.tail = b"certified\n"


@forgery("a line that is nested without end")
def _(f):
    f.tail = b"[" * 100_000 + b"\n"


@forgery("a line in which a name stands twice")
def _(f):
    line = json.dumps({**f.lines.pop(), "seal": "0" * 16})
    f.tail = line.replace('{"index"', '{"lb": 9.0, "lb": 0.5, "index"').encode() + b"\n"


@forgery("the last line torn", careless="true", thorough="true")
def _(f):
    f.tail = b'{"index": 7, "label": 1, "verd'


# The manifest


def fact(name, value, thorough="caught"):
    @forgery(f"manifest: another {name}", thorough=thorough)
    def _(f):
        f.manifest[name] = value
        if name in f.summary:
            f.summary[name] = value


fact("network", "resnet152")
fact("data", "cifar10")
fact("preset", "complete")
fact("images", 1000)
fact("split", "train")
fact("machine", "a pocket calculator", thorough="true")
fact("verifiers", ["misclassified", "quick_pgd", "crown", "alpha_crown", "bab"])
fact("format", 2, thorough="noted")
fact("key", "0" * 64, thorough="true")


def about(name, value):
    @forgery(f"subject: another {name}, with its key")
    def _(f):
        f.manifest["subject"][name] = value
        f.manifest["key"] = key_of(f.manifest["subject"])


about("eps", 0.3)
about("weights", "0" * 64)
about("data", "0" * 64)
about("split", "valid 100")
about("verifiers", [repr(REGISTERED["bab"]())])


@forgery("verifiers rewritten, in manifest and key")
def _(f):
    f.manifest["subject"]["verifiers"] = [repr(REGISTERED[name]()) for name in ("crown", "bab")]
    f.manifest["verifiers"] = ["crown", "bab"]
    f.manifest["key"] = key_of(f.manifest["subject"])


@forgery("a verifier renamed everywhere, in the lines too")
def _(f):
    rename(f, "crown", "zonotope")


@forgery("a verifier renamed to a complete one everywhere", thorough="on trust")
def _(f):
    # Each proof is found again, but not the bound that bab is said to have given.
    rename(f, "crown", "bab")
    f.one("verified")["lb"] *= 1.1


def rename(f, old, new):
    names = [new if name == old else name for name in VERIFIERS]
    f.manifest["verifiers"] = names
    f.manifest["subject"]["verifiers"] = [repr(REGISTERED[name]()) for name in names]
    f.manifest["key"] = key_of(f.manifest["subject"])
    for line in f.lines:
        line["times"] = {new if k == old else k: v for k, v in line["times"].items()}
        line["by"] = new if line["by"] == old else line["by"]


@forgery("a manifest with NaN in it")
def _(f):
    f.manifest["subject"]["eps"] = float("nan")


# The summary


def count(name, value):
    @forgery(f"summary: another {name}")
    def _(f):
        f.summary[name] = value if not callable(value) else value(f.summary[name])


count("verified", lambda n: n + 1)
count("images", lambda n: n + 6)
count("certified", 0.99)
count("certified_interval95", [0.9, 1.0])
count("accuracy", 1.0)
count("of", 10)
count("network", "resnet152")
count("complete", 1)
count("indices", "0-3")
count("seconds", 0.001)


# What is audited, in place of what was certified


@forgery("another network in place of the certified one")
def _(f):
    f.net = copy.deepcopy(f.net)
    with torch.no_grad():
        f.net[1].weight[0, 0, 0, 0] += 1e-4


@forgery("another image in place of a certified one")
def _(f):
    f.data = dataclasses.replace(f.data, sha256="1" * 64)


ELSEWHERE = [name for name in FORGERIES if name.startswith("another ")]


# Whatever their seals, `maar certify` neither continues nor joins such folders.
REFUSED = {
    "verified by a verifier that is not in the manifest",
    "a verdict that does not exist",
    "a bound of zero",
    "a bound that is infinite",
    "a bound that is NaN",
    "open emptied",
    "negative seconds",
    "seconds that are not those of the verifiers",
    "the index is a boolean",
    "the index is a float",
    "the index is negative",
    "the index is beyond the data set",
    "a line twice",
    "a verified image called unknown by a second line",
    "a falsified image called verified by a second line",
    "six images that were never computed",
    "a line that is no JSON",
    "a line that is nested without end",
    "a line in which a name stands twice",
    "manifest: another images",
    "manifest: another split",
    "manifest: another verifiers",
    "manifest: another format",
    "subject: another eps, with its key",
    "subject: another weights, with its key",
    "subject: another data, with its key",
    "subject: another split, with its key",
    "subject: another verifiers, with its key",
    "verifiers rewritten, in manifest and key",
    "a verifier renamed everywhere, in the lines too",
    "a verifier renamed to a complete one everywhere",
    "a manifest with NaN in it",
}


@dataclasses.dataclass(frozen=True, repr=False)
class Idle(Milp):
    """A complete verifier that was given no time: some images stay open."""

    def __call__(self, query):
        return UNKNOWN

    def __repr__(self):
        return repr(Milp())


@pytest.fixture(scope="module")
def data(mnist_mini):
    chosen = [*CHOSEN, *MORE]
    x, y = mnist_mini.x_test[chosen], mnist_mini.y_test[chosen]
    return dataclasses.replace(mnist_mini, x_test=x, y_test=y, sha256="5" * 64)


@pytest.fixture(scope="module")
def plan_of(trained, data):
    def make(indices):
        plan = make_plan(trained, data, EPS, verifiers=VERIFIERS, indices=indices, name="small")
        cascade = plan.task.cascade
        cascade = dataclasses.replace(cascade, verifiers=(*cascade.verifiers[:-1], Idle()))
        return dataclasses.replace(plan, task=dataclasses.replace(plan.task, cascade=cascade))

    return make


@pytest.fixture(scope="module")
def genuine(plan_of, tmp_path_factory):
    """A folder with every kind of verdict, and another of the same key with other images."""
    root = tmp_path_factory.mktemp("genuine")
    run(plan_of(range(IMAGES)), root / "store", workers=1)
    run(plan_of([IMAGES, IMAGES + 1]), root / "other", workers=1)
    merge(root / "both", [root / "store", root / "other"])
    counts = json.loads((root / "store/summary.json").read_text())
    assert counts["misclassified"] >= 1
    assert min(counts["falsified"], counts["verified"], counts["unknown"]) >= 2
    return root


@pytest.fixture(scope="module")
def table():
    """Who noticed what, printed at the end."""
    rows = []
    yield rows
    heads = ("audit", "resume", "merge", "report")
    width = max(len(name) for name, *_ in rows)
    print(f"\n{'forgery':{width}}  forger    {'  '.join(f'{head:8}' for head in heads)}")
    for name, forger, *words in rows:
        print(f"{name:{width}}  {forger:8}  {'  '.join(f'{word:8}' for word in words)}")
    for forger in ("careless", "thorough"):
        mine = [words for _, kind, *words in rows if kind == forger]
        for n, head in enumerate(heads):
            counts = Counter(words[n] for words in mine)
            text = ", ".join(f"{number} {word}" for word, number in counts.most_common())
            print(f"{forger}, {head}: {len(mine)} forgeries: {text}")


@pytest.mark.parametrize("forger", ["careless", "thorough"])
@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_noticed(
    genuine, name, forger, trained, data, tmp_path, table, plan_of, copy_at
):
    forge, careless, thorough = FORGERIES[name]
    path = tmp_path / "store"
    shutil.copytree(genuine / "store", path)
    forged = Forger(name, path, trained, data)
    forge(forged)
    store = copy_at(path, forged.net, forged.data)
    forged.write(store if forger == "thorough" else None)
    for copied in ("resumed", "joined"):
        shutil.copytree(path, tmp_path / copied)
    resumed, joined, out = tmp_path / "resumed", tmp_path / "joined", tmp_path / "out"
    words = {
        "audit": audited(store, everything=forger == "thorough"),
        "resume": noticed(
            lambda: run(plan_of(range(IMAGES)), resumed, workers=1), resumed, genuine / "store"
        ),
        "merge": noticed(lambda: merge(out, [joined, genuine / "other"]), out, genuine / "both"),
        "report": "caught" if collect([path]).problems else "-",
    }
    if name in ELSEWHERE:  # the folder itself is as it was
        words |= {"resume": "", "merge": "", "report": ""}
    table.append((name, forger, *words.values()))
    assert words["audit"] == (thorough if forger == "thorough" else careless)
    if name in REFUSED:
        assert (words["resume"], words["merge"]) == ("caught", "caught")
    if forger == "careless" and name not in ELSEWHERE:
        assert words["resume"] in ("caught", "true")
        assert words["merge"] in ("caught", "true")
        if careless == "caught" and name != "a counterexample deleted":
            assert words["report"] == "caught"


def noticed(action, path, genuine):
    """`caught`, `true` if the result is that of the genuine folder, else `counted`."""
    try:
        action()
    except MaarError as error:
        return "caught" if "\n" not in str(error) else f"caught in several lines: {error}"
    return "true" if result(path) == result(genuine) else "counted"


def result(path):
    """All that is said of the images, without times."""
    lines = map(json.loads, (path / "verdicts.jsonl").read_text().splitlines())
    timed = ("seconds", "times", "seal", "limit")
    said = {x["index"]: {k: v for k, v in x.items() if k not in timed} for x in lines}
    points = {file.name: file.read_bytes() for file in path.glob("counterexamples/*")}
    names = {i: points.get(f"{i}.npz") for i, x in said.items() if x["verdict"] == "falsified"}
    summary = json.loads((path / "summary.json").read_text())
    facts = ("network", "data", "split", "preset", "images", "of", "certified", "certified_upper")
    return said, names, {name: summary[name] for name in facts}


def audited(store, everything):
    """`caught`, or `on trust` or `noted` where the audit says more than before, or `true`.

    Without `everything` it looks at the folder and its counterexamples, and attacks nothing.
    """
    try:
        records = read_folder(store.path).records.values()
        broken = [record["index"] for record in records if record["verdict"] == "falsified"]
        report = store.audit(indices=None if everything else broken)
    except MaarError:
        return "caught"
    if report.wrong:
        return "caught"
    if report.on_trust or report.bounds_on_trust or report.open_on_trust:
        return "on trust"
    telling = ("open images", "have no line", "has no seals")
    is_noted = any(word in note for note in report.notes for word in telling)
    return "noted" if is_noted else "true"


def test_the_documentation_counts_the_forgeries():
    page = Path(__file__).parents[3] / "docs" / "audit.md"
    assert f"forges a folder in {len(FORGERIES)} ways" in page.read_text()
    assert set(FORGERIES) >= REFUSED
