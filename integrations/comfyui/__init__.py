"""Nodes of ComfyUI that generate with xdit: in ComfyUI's process through the Python package, or on
a server (`xdit serve`). ComfyUI loads this folder from custom_nodes; README.md says how."""
from .nodes import NODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS

__all__ = ["NODE_CLASS_MAPPINGS", "NODE_DISPLAY_NAME_MAPPINGS"]
