"""Audit: check a folder of `maar certify` again, by other code than that which made it.

    folder    read it without changing a byte; keys, seals and repeats
    lines     each line by itself, strictly
    facts     what the manifest says about network, data and verifiers
    counts    summary.json against the lines
    points    counterexamples and misclassified images, replayed in float64 and by another program
    attack    an attack of its own on each verified image
    linear    CROWN of its own, in float64: nothing of `maar.domains` is in it
    repeat    the bounds that a line names, asked again
    proofs    what these three, and on request another complete verifier, say of verified images
    run       all of it, to a `Report`

A disagreement is never settled here: it is named, and the audit fails.
"""
