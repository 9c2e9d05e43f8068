"""The error of a mirror that cannot continue: one sentence with the remedy."""


class MirrorError(Exception):
    """Ends the mirror; a retry does not help before its operator has acted."""
