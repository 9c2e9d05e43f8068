"""Other people's record code, as oracles. That kafka-python warns when imported is not our bug."""

import warnings

from aiokafka.record import default_records as aiokafka_records

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import default_records as kafka_python_records

AiokafkaBatch = aiokafka_records.DefaultRecordBatch
AiokafkaBuilder = aiokafka_records.DefaultRecordBatchBuilder
KafkaPythonBatch = kafka_python_records.DefaultRecordBatch
KafkaPythonBuilder = kafka_python_records.DefaultRecordBatchBuilder
