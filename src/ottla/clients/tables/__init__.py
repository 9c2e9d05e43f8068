"""Topics as Arrow tables: ranges of offsets, read in parallel, with typed columns."""
