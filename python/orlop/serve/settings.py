"""What `orlop serve` is told."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field


@dataclass
class Limits:
    """Bounds on what one request may ask for; more is refused, and the message names the bound."""

    body_bytes: int = 8 * 1024 * 1024
    n: int = 128
    sequences: int = 1024
    """Samples of one request: prompts times n."""
    inputs: int = 2048
    """Texts of one embeddings request."""
    stop: int = 16
    logit_bias: int = 1024
    logprobs: int = 20
    tools: int = 128
    messages: int = 4096
    concurrent: int = 4096
    """API requests in progress; one more gets 429."""


@dataclass
class Settings:
    host: str = "127.0.0.1"
    port: int = 8000
    served_names: list[str] = field(default_factory=list)
    api_keys: list[str] = field(default_factory=list)
    cors_origins: list[str] = field(default_factory=list)
    allowed_hosts: list[str] = field(default_factory=list)
    """Names besides loopback's that the Host header may have; on other binds empty means any."""
    guided: bool = True
    pooling: str = "mean"
    page: bool = True
    drain_seconds: float = 0
    """How long requests in progress may take once the server was told to stop; 0: as they need."""
    access_log: bool = False
    limits: Limits = field(default_factory=Limits)

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    host = host.strip("[]")
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
