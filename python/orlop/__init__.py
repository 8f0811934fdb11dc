"""orlop, an embeddable LLM inference engine.

    import orlop

    engine = orlop.Engine("SmolLM2-135M-Instruct.Q4_1.gguf")
    for output in engine.async_generate(messages=[{"role": "user", "content": "What is a ship?"}]):
        print(output.text, end="", flush=True)
"""

from __future__ import annotations

from . import errors
from ._engine import Engine, inspect
from ._logging import set_log_level
from ._native import LogprobTable, Output, feature, version
from ._pipeline import Pipeline, pipeline
from ._request import Request, Result, Status
from .errors import (
    BadFormatError,
    BusyError,
    CancelledError,
    ContextOverflowError,
    Error,
    InternalError,
    InvalidArgumentError,
    IoError,
    NotFoundError,
    OutOfMemoryError,
    QueueFullError,
    ShutdownError,
    UnsupportedError,
)

__version__ = version()
del version

__all__ = [
    "BadFormatError",
    "BusyError",
    "CancelledError",
    "ContextOverflowError",
    "Engine",
    "Error",
    "InternalError",
    "InvalidArgumentError",
    "IoError",
    "LogprobTable",
    "NotFoundError",
    "Output",
    "OutOfMemoryError",
    "Pipeline",
    "QueueFullError",
    "Request",
    "Result",
    "ShutdownError",
    "Status",
    "UnsupportedError",
    "__version__",
    "errors",
    "feature",
    "inspect",
    "pipeline",
    "set_log_level",
]
