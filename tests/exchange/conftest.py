"""This folder on the path: its tests share the module with the hostile files."""

import sys
from pathlib import Path

# pytest's importlib mode adds no folder by itself.
sys.path.insert(0, str(Path(__file__).parent))
