"""Images and videos from prompts with Diffusion Transformers, on one rank or many.

    import xdit
    pipe = xdit.Pipeline.from_pretrained("models/demo-pixart")
    image = pipe("a large red circle on a blue background", num_inference_steps=20).images[0]

The computing is done by libxdit, whose header xdit.h says what each option means.
"""
from ._errors import (Cancelled, CommunicationError, DeviceError, Error, FileError, FormatError,
                      InvalidRequest, OutOfMemory, Unsupported)
from ._library import about, version as _version
from ._pipeline import Output, Pipeline
from ._plan import Plan, Plans, plan
from ._tools import Comparison, compare, inspect

__version__ = _version()
__all__ = ["Cancelled", "CommunicationError", "Comparison", "DeviceError", "Error", "FileError",
           "FormatError", "InvalidRequest", "OutOfMemory", "Output", "Pipeline", "Plan", "Plans",
           "Unsupported", "about", "compare", "inspect", "plan"]
