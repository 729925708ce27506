"""What the auditor says when something does not hold."""


class Violation(AssertionError):
    """`rule` names what was broken, `sequence` the first bad place in the journal, `subject` the
    object (a uid, or a name) whose story is told.
    """

    def __init__(self, rule: str, sequence: int, subject: str, detail: str) -> None:
        super().__init__(f"{rule} at sequence {sequence}: {detail}")
        self.rule = rule
        self.sequence = sequence
        self.subject = subject
        self.detail = detail

    def __reduce__(self) -> tuple[object, ...]:
        """Seeds run in other processes: what they found has to come back whole."""
        return type(self), (self.rule, self.sequence, self.subject, self.detail)
