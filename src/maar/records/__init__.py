"""What lies on disk, as typed dataclasses: one reader and one writer for each kind of file.

    runs          the folder of a run: config.toml, metrics.jsonl, result.json, env.json
    stores        the folder of a certification or of radii: manifest, lines, summary
    verdicts      a line of verdicts.jsonl, and how verdicts are counted
    radii         a line of radii.jsonl, and how radii are counted
    evaluations   the files of `maar evaluate`

Imports neither torch nor any other package of maar but `core`. The audit has a reader of its own,
on purpose.
"""
