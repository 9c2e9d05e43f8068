"""Files of a log dir: names, locks, checkpoints, damage marks, open files."""
