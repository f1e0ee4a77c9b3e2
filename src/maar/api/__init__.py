"""The verbs of the Python API, one file each family; `import maar` gives them lazily.

Functions here take tensors and modules, and return small frozen results. The command line calls
the same code below them. Nothing is printed unless `progress=True`.
"""
