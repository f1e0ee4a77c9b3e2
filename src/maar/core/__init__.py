"""Single files for everyone: errors, radii, registries, settings, files, limits.

Nothing here imports another package of maar.
"""
