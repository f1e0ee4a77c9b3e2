"""COLT's estimate of a zonotope's bounds by random projections: for training, never a proof.

`estimate` is the domain; the other files make its norms and medians fast.
"""
