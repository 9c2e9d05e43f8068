"""Other libraries' record code, as oracles. kafka-python's import warnings are ignored."""

import warnings

from aiokafka.record import default_records as aiokafka_records

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import default_records as kafka_python_records

AiokafkaBatch = aiokafka_records.DefaultRecordBatch
AiokafkaBuilder = aiokafka_records.DefaultRecordBatchBuilder
KafkaPythonBatch = kafka_python_records.DefaultRecordBatch
KafkaPythonBuilder = kafka_python_records.DefaultRecordBatchBuilder
