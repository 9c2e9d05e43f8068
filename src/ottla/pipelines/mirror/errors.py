"""What a mirror raises when it cannot go on: one sentence, with what to do."""


class MirrorError(Exception):
    """Ends the mirror; trying again does not help before somebody has done something."""
