"""The one exception a user may meet: a sentence that names the thing, the place and the mend."""


class TensorstepError(Exception):
    """A mistake in what was asked for (or a thing that is missing), told in one sentence.

    `exit_code` is what the command ends with: 1 for a thing that failed, 2 for wrong usage.
    `trace` is the traceback of a mistake in code of the user's, which --debug tells.
    """

    trace = ""

    def __init__(self, sentence: str, exit_code: int = 1):
        super().__init__(sentence)
        self.exit_code = exit_code


class UsageError(TensorstepError):
    """An option or argument that cannot be used as given (exit code 2)."""

    def __init__(self, sentence: str):
        super().__init__(sentence, exit_code=2)
