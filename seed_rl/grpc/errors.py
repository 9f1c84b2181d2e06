"""Errors of calls; imports neither TensorFlow nor gRPC."""

from __future__ import annotations

import enum


class StatusCode(enum.IntEnum):
    """gRPC's status codes, as used in error frames."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class WireError(ValueError):
    """Bytes or JSON that violate the wire format (docs/wire_format.md)."""


class ClientError(Exception):
    """Any failure of a call; the three subclasses call for different reactions."""


class ConnectionLost(ClientError):
    """The server is unreachable or went away; a new client may succeed later."""


class CallError(ClientError):
    """The call failed, but the connection is fine; the same call would fail again.

    Attributes:
      code: gRPC status code; a `StatusCode` if it is a known one.
      message: error message of the server, or of the client's own argument checks.
    """

    def __init__(self, code: int, message: str):
        self.code = _known(code)
        self.message = message
        name = self.code.name if isinstance(self.code, StatusCode) else f"code {code}"
        super().__init__(f"{name}: {message}")


class CallTooLargeError(CallError):
    """The client does not send calls of more than `ClientOptions.max_message_bytes`."""

    def __init__(self, message: str):
        super().__init__(StatusCode.RESOURCE_EXHAUSTED, message)


class Timeout(ClientError):
    """No answer within `ClientOptions.call_timeout_s`; the server may still run the call."""


def _known(code: int) -> int:
    try:
        return StatusCode(code)
    except ValueError:
        return code
