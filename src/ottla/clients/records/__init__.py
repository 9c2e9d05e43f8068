"""From objects to keys, values and partitions: serializers, partitioner, interceptors."""
