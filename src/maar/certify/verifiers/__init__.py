"""The verifiers, one file each; `maar.certify.VERIFIERS` has their names."""
