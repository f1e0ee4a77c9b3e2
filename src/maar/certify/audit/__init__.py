"""Audit: check a folder of `maar certify` again, by other code than that which made it.

    folder    read it without changing a byte; lines and repeats
    counts    summary.json against the lines
    points    counterexamples and misclassified images, replayed in float64 and by another program
    attack    an attack of its own on each verified image
    linear    CROWN of its own, in float64: nothing of `maar.bounds` is in it
    proofs    what these two, and on request another complete verifier, say of verified images
    run       all of it, to a `Report`

A disagreement is never settled here: it is named, and the audit fails.
"""
