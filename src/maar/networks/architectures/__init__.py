"""The networks that maar builds by name, one family a file.

Only the registry in `maar.networks` names them.
"""
