"""maar: neural networks whose robustness is proved, not hoped for."""

__version__ = "0.1.0"
