"""Errors of the edges, split by what the caller does next."""


class LockstepError(Exception):
    """Any error with a message meant for a person: it names the object, the field and the remedy."""


class InvalidMessage(LockstepError):
    """Bytes or an object that cannot be understood. The caller dead-letters it with `reason` and goes on.

    `reason` is a CamelCase word to count by (`NotJson`, `FutureVersion`, `TooLarge`, `UnknownKind`,
    `InvalidField`); the text says which field of which object.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Unavailable(LockstepError):
    """The other side does not answer now. The caller retries with bounded back-off."""


class Fatal(LockstepError):
    """The role must stop; going on would lose or repeat something.

    `cause` is a word to count by, and to find the page in `docs/runbooks/` with.
    """

    def __init__(self, message: str, cause: str = "other") -> None:
        super().__init__(message)
        self.cause = cause
