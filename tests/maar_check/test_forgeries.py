"""Every forged folder is refused, each with a reason; a valid one is accepted."""

from __future__ import annotations

import io
import json
import shutil
import struct
import zipfile

import numpy as np
import pytest

from maar_check import check_folder
from maar_check.certificate import read_arrays, sha256

MANIFEST, NETWORK = "manifest.json", "network.onnx"


class Forged:
    """A copy of a folder of certificates, to be edited as somebody would who wants to deceive."""

    def __init__(self, made, folder):
        shutil.copytree(made.path, folder)
        self.path, self.made = folder, made
        self.manifest = json.loads((folder / MANIFEST).read_text())
        index = made.one
        self.crown, self.alpha, self.bab = index("crown"), index("alpha_crown"), index("bab")
        self.broken, self.wrong = index("quick_pgd"), index("misclassified")

    def row(self, index):
        return next(row for row in self.manifest["images"] if row["index"] == index)

    def arrays(self, index):
        return dict(read_arrays((self.path / f"{index}.npz").read_bytes()))

    def about(self, index):
        return json.loads(self.arrays(index)["about"].tobytes())

    def put(self, index, arrays, about=None):
        """Write a certificate, and its hash into the manifest."""
        if about is not None:
            arrays = {**arrays, "about": np.frombuffer(json.dumps(about).encode(), np.uint8)}
        self.put_bytes(index, zipped({name: npy(array) for name, array in arrays.items()}))

    def put_bytes(self, index, content):
        (self.path / f"{index}.npz").write_bytes(content)
        self.row(index)["certificate"] = sha256(content)
        self.save()

    def tell(self, index, **changes):
        self.put(index, self.arrays(index), {**self.about(index), **changes})

    def save(self):
        (self.path / MANIFEST).write_text(json.dumps(self.manifest))

    def recount(self):
        kinds = ("verified", "falsified", "misclassified", "none")
        verdicts = [row["verdict"] for row in self.manifest["images"]]
        self.manifest["counts"] = {kind: verdicts.count(kind) for kind in kinds}
        self.save()

    def tree(self):
        """Arrays of the image that was branched on, and the name of a class with splits."""
        arrays = self.arrays(self.bab)
        trees = [name for name in arrays if name.endswith(".tree") and len(arrays[name]) > 1]
        return arrays, trees[0].removesuffix(".tree")


def npy(array, allow_pickle=False):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), version=(1, 0), allow_pickle=allow_pickle)
    return file.getvalue()


def zipped(members, method=zipfile.ZIP_DEFLATED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members.items() if isinstance(members, dict) else members:
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def members_of(forged, index):
    return {name: npy(array) for name, array in forged.arrays(index).items()}


FORGERIES = {}


def forgery(says):
    """Register a forgery and what the reason against it says."""

    def register(forge):
        FORGERIES[forge.__name__] = (forge, says)
        return forge

    return register


@forgery("network.onnx is not the manifest's")
def another_network_file(f):
    content = bytearray((f.path / NETWORK).read_bytes())
    content[len(content) // 2] ^= 1
    (f.path / NETWORK).write_bytes(bytes(content))


@forgery("another network")
def network_replaced_everywhere_but_in_certificates(f):
    content = bytearray((f.path / NETWORK).read_bytes())
    content[len(content) // 2] ^= 1
    (f.path / NETWORK).write_bytes(bytes(content))
    f.manifest["network"] = sha256(bytes(content))
    f.save()


@forgery("is missing")
def network_missing(f):
    (f.path / NETWORK).unlink()


@forgery("damaged")
def network_truncated(f):
    content = (f.path / NETWORK).read_bytes()[:-40]
    (f.path / NETWORK).write_bytes(content)
    f.manifest["network"] = sha256(content)
    f.save()


@forgery("is missing")
def manifest_missing(f):
    (f.path / MANIFEST).unlink()


@forgery("damaged JSON")
def manifest_truncated(f):
    (f.path / MANIFEST).write_text((f.path / MANIFEST).read_text()[:-30])


@forgery("is no number")
def manifest_with_nan(f):
    f.manifest["counts"]["verified"] = float("nan")
    f.save()


@forgery("twice")
def manifest_names_a_field_twice(f):
    text = (f.path / MANIFEST).read_text()
    (f.path / MANIFEST).write_text('{"eps": "0.5",' + text[1:])


@forgery("other fields")
def manifest_with_another_field(f):
    f.manifest["note"] = "trust me"
    f.save()


@forgery("the counts are")
def counts_raised(f):
    f.manifest["counts"]["verified"] += 1
    f.save()


@forgery("is there twice")
def an_image_counted_twice(f):
    f.manifest["images"].append(f.row(f.crown))
    f.recount()


@forgery("not in the manifest")
def a_bad_image_hidden(f):
    f.manifest["images"].remove(f.row(f.broken))
    f.recount()


@forgery("no images")
def no_images_at_all(f):
    f.manifest["images"] = []
    f.recount()


@forgery("format")
def manifest_of_another_format(f):
    f.manifest["format"] = 2
    f.save()


@forgery("its eps is not the manifest's")
def manifest_claims_a_larger_eps(f):
    f.manifest["eps"] = "0.3"
    f.save()


@forgery("is not proved")
def larger_eps_everywhere(f):
    f.manifest["eps"] = "0.5"
    for row in f.manifest["images"]:
        f.tell(row["index"], eps="0.5")


@forgery("its eps is not the manifest's")
def negative_eps(f):
    f.manifest["eps"] = "-0.03"
    f.save()


@forgery("is no ball")
def negative_eps_in_a_certificate(f):
    f.tell(f.crown, eps="-0.03")


@forgery("(accepted: such as 0.1 or 2/255)")
def eps_is_no_number(f):
    f.tell(f.crown, eps="nan")


@forgery("its low is not the manifest's")
def smaller_range(f):
    f.tell(f.crown, low="0.5", high="0.5")


@forgery("the certificate is not the manifest's")
def certificate_changed_alone(f):
    other = f.made.path / f"{f.bab}.npz"
    shutil.copy(other, f.path / f"{f.crown}.npz")


@forgery("its index is")
def certificate_of_another_image(f):
    f.put_bytes(f.crown, (f.path / f"{f.bab}.npz").read_bytes())


@forgery("is missing")
def certificate_missing(f):
    (f.path / f"{f.crown}.npz").unlink()


@forgery("damaged archive")
def certificate_truncated(f):
    f.put_bytes(f.bab, (f.path / f"{f.bab}.npz").read_bytes()[:-100])


@forgery("damaged archive")
def certificate_empty(f):
    f.put_bytes(f.bab, b"")


@forgery("its kind is falsified")
def falsified_presented_as_verified(f):
    f.row(f.broken)["verdict"] = "verified"
    f.recount()


@forgery("is not proved")
def falsified_relabelled_in_the_certificate(f):
    f.row(f.broken)["verdict"] = "verified"
    f.recount()
    f.tell(f.broken, kind="verified", lemmas=["interval", "crown", "crown"])


@forgery("is not proved")
def falsified_as_verified_without_its_point(f):
    f.row(f.broken)["verdict"] = "verified"
    f.recount()
    arrays = f.arrays(f.broken)
    del arrays["point"]
    lemmas = ["interval", "crown", "crown"]
    f.put(f.broken, arrays, {**f.about(f.broken), "kind": "verified", "lemmas": lemmas})


@forgery("is not proved")
def misclassified_presented_as_verified(f):
    f.row(f.wrong)["verdict"] = "verified"
    f.recount()
    f.tell(f.wrong, kind="verified", lemmas=["interval", "crown", "crown"])


@forgery("no class is certainly ahead")
def verified_presented_as_misclassified(f):
    f.row(f.crown)["verdict"] = "misclassified"
    f.recount()
    f.tell(f.crown, kind="misclassified", lemmas=[])


@forgery("no class is certainly ahead")
def counterexample_that_is_none(f):
    arrays = f.arrays(f.broken)
    f.put(f.broken, {**arrays, "point": arrays["image"]})


@forgery("outside the ball")
def counterexample_too_far_away(f):
    arrays = f.arrays(f.broken)
    f.put(f.broken, {**arrays, "point": arrays["image"] + np.float32(0.2)})


@forgery("outside the ball")
def counterexample_with_nan(f):
    arrays = f.arrays(f.broken)
    f.put(f.broken, {**arrays, "point": np.full_like(arrays["image"], np.nan)})


@forgery("no such form")
def counterexample_of_another_shape(f):
    arrays = f.arrays(f.broken)
    f.put(f.broken, {**arrays, "point": arrays["image"].ravel()})


@forgery("is not proved")
def another_label_everywhere(f):
    for index in (f.crown, f.bab):
        label = (f.row(index)["label"] + 1) % 4
        f.row(index)["label"] = label
        f.tell(index, label=label)


@forgery("its label is")
def another_label_in_the_certificate(f):
    f.tell(f.crown, label=(f.row(f.crown)["label"] + 1) % 4)


@forgery("of 4 classes")
def label_that_is_no_class(f):
    f.row(f.crown)["label"] = 9
    f.tell(f.crown, label=9)


@forgery("not finite")
def image_with_nan(f):
    arrays = f.arrays(f.crown)
    arrays["image"] = np.full_like(arrays["image"], np.nan)
    f.put(f.crown, arrays)


@forgery("the image leaves")
def image_out_of_range(f):
    arrays = f.arrays(f.crown)
    f.put(f.crown, {**arrays, "image": arrays["image"] + np.float32(1)})


@forgery("the image has shape")
def image_of_another_shape(f):
    arrays = f.arrays(f.crown)
    f.put(f.crown, {**arrays, "image": arrays["image"].ravel()})


@forgery("lemmas")
def a_lemma_dropped(f):
    f.tell(f.bab, lemmas=f.about(f.bab)["lemmas"][:-1])


@forgery("lemmas")
def a_lemma_of_another_name(f):
    f.tell(f.bab, lemmas=["believed", "crown", "crown"])


@forgery("no meaning here")
def bounds_stated_tighter_than_the_truth(f):
    arrays = f.arrays(f.bab)
    f.put(f.bab, {**arrays, "lower.1": np.zeros(16, "<f4")})


@forgery("lacks a leaf")
def a_leaf_dropped(f):
    arrays, name = f.tree()
    arrays[f"{name}.tree"] = arrays[f"{name}.tree"][:-1]
    arrays[f"{name}.which"] = arrays[f"{name}.which"][:-1]
    f.put(f.bab, arrays)


@forgery("after its last leaf")
def a_leaf_duplicated(f):
    arrays, name = f.tree()
    arrays[f"{name}.tree"] = np.concatenate([arrays[f"{name}.tree"], [[-1, -1]]]).astype("<i4")
    arrays[f"{name}.which"] = np.append(arrays[f"{name}.which"], 0).astype("<i4")
    f.put(f.bab, arrays)


@forgery("lacks a leaf")
def an_empty_tree(f):
    arrays, name = f.tree()
    arrays[f"{name}.tree"] = arrays[f"{name}.tree"][:0]
    f.put(f.bab, arrays)


@forgery("is split twice")
def a_neuron_split_twice_on_a_path(f):
    arrays, name = f.tree()
    root = arrays[f"{name}.tree"][:1]
    leaf = np.array([[-1, -1]])
    tree = np.concatenate([root, root, leaf, leaf, leaf]).astype("<i4")
    f.put(f.bab, {**arrays, f"{name}.tree": tree})


@forgery("not among the columns")
def a_split_of_an_unknown_neuron(f):
    arrays, name = f.tree()
    tree = arrays[f"{name}.tree"].copy()
    tree[0] = [2, 7000]
    f.put(f.bab, {**arrays, f"{name}.tree": tree})


@forgery("not among the columns")
def a_split_of_an_unknown_layer(f):
    arrays, name = f.tree()
    tree = arrays[f"{name}.tree"].copy()
    tree[0] = [9, 0]
    f.put(f.bab, {**arrays, f"{name}.tree": tree})


@forgery("is not proved")
def prices_that_prove_nothing(f):
    arrays, name = f.tree()
    f.put(f.bab, {**arrays, f"{name}.prices": arrays[f"{name}.prices"] + np.float32(1e6)})


@forgery("is no number >= 0")
def negative_prices(f):
    arrays, name = f.tree()
    f.put(f.bab, {**arrays, f"{name}.prices": -arrays[f"{name}.prices"] - 1})


@forgery("is no number >= 0")
def prices_of_nan(f):
    arrays, name = f.tree()
    f.put(f.bab, {**arrays, f"{name}.prices": arrays[f"{name}.prices"] * np.float32(np.nan)})


@forgery("is no number >= 0")
def infinite_prices(f):
    arrays, name = f.tree()
    f.put(f.bab, {**arrays, f"{name}.prices": arrays[f"{name}.prices"] + np.float32(np.inf)})


@forgery("of shape")
def a_price_too_many(f):
    arrays, name = f.tree()
    prices = np.append(arrays[f"{name}.prices"], np.float32(1))
    f.put(f.bab, {**arrays, f"{name}.prices": prices})


@forgery("is float32")
def slopes_that_could_leave_their_range(f):
    arrays, name = f.tree()
    key = next(key for key in arrays if key.startswith(f"{name}.slopes"))
    f.put(f.bab, {**arrays, key: arrays[key].astype("<f4") * 2})


@forgery("slopes that are not there")
def slopes_out_of_reach(f):
    arrays, name = f.tree()
    f.put(f.bab, {**arrays, f"{name}.which": arrays[f"{name}.which"] + np.int32(10_000)})


@forgery("of shape")
def slopes_of_another_width(f):
    arrays, name = f.tree()
    key = next(key for key in arrays if key.startswith(f"{name}.slopes") and arrays[key].size)
    f.put(f.bab, {**arrays, key: arrays[key][:, :-1]})


@forgery("names no neurons")
def columns_with_a_neuron_twice(f):
    arrays = f.arrays(f.bab)
    key = next(key for key in arrays if key.startswith("columns") and len(arrays[key]) > 1)
    columns = arrays[key].copy()
    columns[0] = columns[1]
    f.put(f.bab, {**arrays, key: columns})


@forgery("names no neurons")
def columns_beyond_the_layer(f):
    arrays = f.arrays(f.bab)
    key = next(key for key in arrays if key.startswith("columns") and len(arrays[key]))
    f.put(f.bab, {**arrays, key: arrays[key] + np.int32(100_000)})


@forgery("is missing")
def a_needed_array_dropped(f):
    arrays, name = f.tree()
    del arrays[f"{name}.prices"]
    f.put(f.bab, arrays)


@forgery("is not proved")
def a_tree_dropped_altogether(f):
    arrays, name = f.tree()
    f.put(f.bab, {key: array for key, array in arrays.items() if not key.startswith(name)})


@forgery("'about' has other fields")
def about_with_another_field(f):
    f.put(f.crown, f.arrays(f.crown), {**f.about(f.crown), "trust": True})


@forgery("there is no array 'about'")
def about_missing(f):
    f.put(f.crown, {"image": f.arrays(f.crown)["image"]})


@forgery("format")
def certificate_of_another_format(f):
    f.tell(f.crown, format=7)


@forgery("kind")
def certificate_of_another_kind(f):
    f.tell(f.crown, kind="robust")


@forgery("unpack")
def a_zip_bomb(f):
    members = {**members_of(f, f.crown), "bomb": b"\0" * (600 << 20)}
    f.put_bytes(f.crown, zipped(members))


@forgery("damaged archive")
def a_zip_that_lies_about_sizes(f):
    content = zipped({**members_of(f, f.crown), "more": npy(np.zeros(4000, np.uint8))})
    at = content.rfind(b"PK\1\2")
    size = struct.pack("<I", 10)
    f.put_bytes(f.crown, content[: at + 24] + size + content[at + 28 :])


@forgery("twice")
def an_array_twice(f):
    members = [*members_of(f, f.crown).items(), ("image", npy(np.zeros((1, 6, 6), "<f4")))]
    with pytest.warns(UserWarning, match="Duplicate"):
        content = zipped(members)
    f.put_bytes(f.crown, content)


@forgery("is of type object")
def a_pickle(f):
    pickled = npy(np.array([{"a": 1}], object), allow_pickle=True)
    f.put_bytes(f.crown, zipped({**members_of(f, f.crown), "image": pickled}))


@forgery("is packed otherwise")
def packed_by_another_method(f):
    f.put_bytes(f.crown, zipped(members_of(f, f.crown), zipfile.ZIP_BZIP2))


@forgery("not of its shape")
def a_header_that_asks_for_more(f):
    content = npy(np.zeros((1, 6, 6), "<f4")).replace(b"(1, 6, 6)", b"(9, 9, 9)")
    f.put_bytes(f.crown, zipped({**members_of(f, f.crown), "image": content}))


@forgery("there are 5000 arrays")
def very_many_arrays(f):
    f.put_bytes(f.crown, zipped({str(n): b"" for n in range(5000)}))


def test_the_folder_itself_holds(made):
    total = check_folder(made.path)
    assert total.holds, total.refused
    assert total.checked == total.images == len(made.by)
    assert {"crown", "alpha_crown", "bab", "quick_pgd", "misclassified"} <= set(made.by.values())


def test_there_are_enough_kinds_of_forgery():
    assert len(FORGERIES) >= 40


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_refused_with_a_reason(name, made, tmp_path):
    forge, says = FORGERIES[name]
    forged = Forged(made, tmp_path / "forged")
    forge(forged)
    total = check_folder(forged.path)
    assert not total.holds
    assert says in " | ".join(total.refused)
    assert all("\n" not in reason for reason in total.refused)
