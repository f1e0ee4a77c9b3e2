"""The verifiers, one file each; `maar.certification.VERIFIERS` has their names."""
