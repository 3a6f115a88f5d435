"""The one exception that means: the input is at fault, not the code."""


class BadInput(Exception):
    """Bad input, in one line: what is wrong and where. `pipelines.runtime.stage` prints it without a stack and exits with 2."""
