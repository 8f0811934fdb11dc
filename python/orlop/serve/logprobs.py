"""Logprobs in the two forms of the API."""

from __future__ import annotations

from typing import Any

from .. import _native
from .._engine import Engine
from ..errors import InvalidArgumentError


class TokenTexts:
    """What single tokens spell, kept per engine."""

    def __init__(self, engine: Engine):
        self._engine = engine
        self._known: dict[int, tuple[str, bytes]] = {}

    def entry(self, token: int) -> tuple[str, bytes]:
        """(text with U+FFFD for what is not UTF-8, bytes)."""
        known = self._known.get(token)
        if known is None:
            if len(self._known) > 50_000:
                self._known.clear()
            try:
                raw = self._engine.token_bytes(token)
            except InvalidArgumentError:  # a padding row of the output matrix
                raw = b""
            known = self._known[token] = (raw.decode(errors="replace"), raw)
        return known

    def chat(
        self, tokens: list[int], logprobs: list[float], top: _native.LogprobTable | None, most: int
    ) -> list[dict[str, Any]]:
        """The `content` array of a chat completion's logprobs."""
        out = []
        for i, (token, logprob) in enumerate(zip(tokens, logprobs)):
            row = top[i][:most] if top is not None and most else []
            entry = self._one(token, logprob)
            entry["top_logprobs"] = [self._one(t, p) for t, p in row]
            out.append(entry)
        return out

    def _one(self, token: int, logprob: float) -> dict[str, Any]:
        text, raw = self.entry(token)
        return {"token": text, "logprob": finite(logprob), "bytes": list(raw)}

    def name(self, token: int) -> str:
        """As completions write tokens: those that are not text by their bytes."""
        text, raw = self.entry(token)
        if "\ufffd" in text and text.encode() != raw:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
        return text

    def completion(
        self,
        tokens: list[int],
        logprobs: list[float | None],
        rows: list[list[tuple[int, float]] | None],
        offset: int,
    ) -> tuple[dict[str, Any], int]:
        """The logprobs object of a completion, and the offset behind its tokens."""
        offsets, pending = [], b""
        for token in tokens:
            offsets.append(offset)
            pending += self.entry(token)[1]
            try:
                offset += len(pending.decode())
                pending = b""
            except UnicodeDecodeError as error:
                if error.reason != "unexpected end of data" or len(pending) > 8:
                    offset += len(pending.decode(errors="replace"))
                    pending = b""
        table = [
            None if row is None else {self.name(t): finite(p) for t, p in row} for row in rows
        ]
        return {
            "tokens": [self.name(token) for token in tokens],
            "token_logprobs": [None if p is None else finite(p) for p in logprobs],
            "top_logprobs": table,
            "text_offset": offsets,
        }, offset


def finite(value: float) -> float:
    """JSON has no infinity: the API's lowest value instead."""
    return value if value > -9999.0 else -9999.0


def shown(out: _native.Output, tokens: list[int]) -> int:
    """How many of an output's tokens are part of the answer: the one that ends a turn is not."""
    return len(tokens) - (1 if out.stop_token is not None and tokens else 0)
