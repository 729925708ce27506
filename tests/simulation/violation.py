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
