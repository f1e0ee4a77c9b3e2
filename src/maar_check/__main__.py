"""`python -m maar_check DIR`: one table, and exit code 0 only if every claim holds."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before numpy: one thread for each process


def main() -> int:
    """Check the folder that is named, and print what holds."""
    parser = argparse.ArgumentParser("maar_check", description="Check a folder of certificates.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=_count, default=1, help="processes, one thread each")
    parser.add_argument("--sample", type=_count, help="only so many certificates, at random")
    parser.add_argument("--seed", type=int, help="of the sample")
    parser.add_argument("--exact", action="store_true", help="in rational numbers: small networks")
    parser.add_argument("--claim", choices=("real", "float32"), default="real",
                        help="the network in real numbers, or as computed in float32")  # fmt: skip
    parser.add_argument("--data", type=Path, help="compare images and labels with this data set")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    args = parser.parse_args()

    from maar_check.folder import check_folder

    total = check_folder(
        args.folder, workers=args.workers, sample=args.sample, exact=args.exact,
        claim=args.claim, data=args.data, seed=args.seed,
        progress=_show if sys.stderr.isatty() else lambda done, of: None,
    )  # fmt: skip
    if args.json:
        print(json.dumps({**vars(total), "least": str(total.least), "holds": total.holds}))
        return 0 if total.holds else 1
    print(total.table())
    return 0 if total.holds else 1


def _count(text: str) -> int:
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


def _show(done: int, of: int) -> None:
    print(f"\r{done}/{of}", end="\n" if done == of else "", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
