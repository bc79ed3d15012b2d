"""The engine's typed errors: every request ends in an output or in exactly one of these.

Each message is one sentence that says what happened and what to do about it.
"""


class EngineError(Exception):
    """Base of everything the engine raises on purpose."""


class ModelLoadError(EngineError):
    """The model's files are missing, damaged or of an unsupported kind."""


class QueueFull(EngineError):
    """The waiting queue is at its bound; the request was never accepted."""


class PromptTooLong(EngineError):
    """The prompt with its answer does not fit the model's context."""


class NoChoices(EngineError):
    """There is nothing to choose from."""


class BoundaryMerge(EngineError):
    """A choice would merge with the end of the prompt into other tokens, so its score would be wrong."""


class DeadlineExceeded(EngineError):
    """The request's deadline passed before it was finished."""


class Aborted(EngineError):
    """The request was aborted, or the engine was closed under it."""


class OutOfMemory(EngineError):
    """The request can never fit the memory of the key-value cache."""
