"""orlop, an embeddable LLM inference engine.

    import orlop

    engine = orlop.Engine("SmolLM2-135M-Instruct.Q4_1.gguf")
    for output in engine.async_generate(messages=[{"role": "user", "content": "What is a ship?"}]):
        print(output.text, end="", flush=True)
"""

from __future__ import annotations

from . import errors
from ._chat_output import ChatOutput
from ._engine import Engine, StateInfo, inspect
from ._guide import guide_check
from ._logging import set_log_level
from ._native import LogprobTable, Output, feature, version
from ._pipeline import Pipeline, pipeline
from ._request import Request, Result, Sample, Status
from .errors import (
    BadFormatError,
    BusyError,
    CancelledError,
    ContextOverflowError,
    DeadlineError,
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
    "ChatOutput",
    "ContextOverflowError",
    "DeadlineError",
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
    "Sample",
    "ShutdownError",
    "StateInfo",
    "Status",
    "UnsupportedError",
    "__version__",
    "errors",
    "feature",
    "guide_check",
    "inspect",
    "pipeline",
    "set_log_level",
]
