"""Names of subjects with their context: `:.context:subject`.

The default context is `.`, and its subjects are written without a context. `:.context:` alone
stands for the context, and `:.__GLOBAL:` for all contexts. Every function here takes and returns
names in this form; `normalized` makes it.
"""

from typing import Final

DEFAULT_CONTEXT: Final = "."
GLOBAL: Final = ":.__GLOBAL:"
EVERY_CONTEXT: Final = ":*:"
"""A prefix of subjects in queries, no name."""
_GLOBAL_SUBJECTS: Final = frozenset({"__GLOBAL", "__EMPTY"})


def context_of(subject: str) -> str:
    """Return the context of a subject: `.c` of `:.c:s`."""
    return split(subject)[0]


def split(subject: str) -> tuple[str, str]:
    """Return the context and the name in it. Names that only look qualified are plain names."""
    if subject.startswith(":."):
        end = subject.find(":", 2)
        if end > 0:
            return subject[1:end], subject[end + 1 :]
    return DEFAULT_CONTEXT, subject


def qualified(context: str, name: str) -> str:
    """Return a subject of a context."""
    return name if context == DEFAULT_CONTEXT else f":{context}:{name}"


def normalized(subject: str) -> str:
    """Return a subject without the mark of the default context: `s` of `:.:s`."""
    return qualified(*split(subject))


def is_qualified(subject: str) -> bool:
    """Tell whether a name has a context."""
    return subject.startswith((":.", EVERY_CONTEXT)) and subject.count(":") >= 2


def context_named(name: str) -> str:
    """Return the context of a path or query: `.c`, `c` and `:.c:` are the same."""
    bare = name.strip(":") if name.startswith(":") else name
    return bare if bare.startswith(".") else f".{bare}"


def in_context_of(referrer: str, subject: str) -> str:
    """Return the subject of a reference: without a context, it is in the referrer's."""
    if is_qualified(subject):
        return normalized(subject)
    return qualified(context_of(referrer), subject)


def is_valid(subject: str) -> bool:
    """Tell whether a subject may be registered, or be configured."""
    return (
        split(subject)[1] not in _GLOBAL_SUBJECTS
        and not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in subject)
        and len(subject) <= SUBJECT_CHARACTERS_MAX
    )


SUBJECT_CHARACTERS_MAX: Final = 1024
"""The length of a subject with its context."""
