"""One image's network with the stable ReLUs taken out, and branch and bound on it.

The zonotope, CROWN and alpha-CROWN of a compiled network and every solver's program start here.
"""
