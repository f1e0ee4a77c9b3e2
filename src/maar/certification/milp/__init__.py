"""The reduced network of an image as a linear or mixed-integer program.

Encoding    the rows of a `Reduced` network, with some ReLUs exact and the rest relaxed
choose      which ReLUs are exact
refine      tighter bounds of single neurons, each by a program over its receptive field
Program     the verifier that they make, of which `lp` and the `milp`s are settings
"""
