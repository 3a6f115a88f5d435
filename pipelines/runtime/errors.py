"""The one exception that means: the input is at fault, not the code."""


class BadInput(Exception):
    """Bad input, said in one line: what is wrong and where. `pipelines.stage` prints it without a stack and exits with 2."""
