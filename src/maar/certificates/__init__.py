"""Write proofs down while they are found, for `maar_check` to check.

    Notes       what verifiers leave behind: slopes, prices, leaves of the search
    Proof       the same, rounded to short numbers, as the arrays of one certificate
    Folder      network.onnx, INDEX.npz for each image, manifest.json

Prover and checker are different programs: nothing here is imported by `maar_check`.
"""
