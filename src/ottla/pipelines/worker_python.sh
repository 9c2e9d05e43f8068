#!/bin/sh
# Runs Spark's Python processes on this machine, without Spark's own jar on their path.
# Spark puts it there, and nothing in it is Python; but Python reads the names of its 4,000 files,
# and twice more when a process is told where its files are: 65 ms of each start.
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
    case $entry in
    */spark-core_*.jar) ;;
    *) kept=$kept${kept:+:}$entry ;;
    esac
done
export PYTHONPATH="$kept"
exec "$PYSPARK_REAL_PYTHON" "$@"
