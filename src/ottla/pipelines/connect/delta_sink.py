"""Appends records to a Delta table; the table itself stores the number of the last batch."""

from typing import TYPE_CHECKING, ClassVar, Final

from ottla.pipelines.connect.declaring.connector import SinkConnector
from ottla.pipelines.connect.declaring.errors import ConnectorError, older_checkpoint
from ottla.pipelines.connect.declaring.settings import REQUIRED, Setting, text, whole, words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COMPACTED_BYTES: Final = 128 << 20


class DeltaSink(SinkConnector):
    """Writes the fields of values; each batch is one commit with the application's transaction."""

    SETTINGS: ClassVar[tuple[Setting, ...]] = (
        Setting("path", text, REQUIRED, "where the table is: a directory, or s3://… and the like"),
        Setting("partition.by", words, (), "the fields that partition the table"),
        Setting("compact.every.batches", whole, 50, "how often files are merged; 0 for never"),
        Setting("storage.", text, None, "options of the store, such as its keys"),
    )

    def write(self, batch: "DataFrame", batch_id: int) -> None:
        """Append a batch, unless the table contains it already."""
        from deltalake import CommitProperties, Transaction, write_deltalake  # noqa: PLC0415

        app_id = f"ottla-connect-{self.home.name}-{self.home.id}"
        last = self._last_batch(app_id)
        if last > batch_id:
            raise older_checkpoint("the table", last, batch_id)
        if last == batch_id:
            return
        rows = batch.where("value IS NOT NULL").select("value.*").toArrow()
        if rows.num_rows == 0:
            return
        write_deltalake(
            self.settings["path"],
            rows,
            mode="append",
            schema_mode="merge",
            partition_by=list(self.settings["partition.by"]) or None,
            storage_options=self.settings["storage."] or None,
            commit_properties=CommitProperties(
                app_transactions=[Transaction(app_id=app_id, version=batch_id)]
            ),
        )
        self._compact(batch_id)

    def check(self) -> None:
        """Check that the package is installed."""
        try:
            import deltalake  # noqa: F401, PLC0415
        except ImportError:
            raise ConnectorError("a Delta table needs `pip install 'ottla[delta]'`") from None

    def _last_batch(self, app_id: str) -> int:
        from deltalake import DeltaTable  # noqa: PLC0415

        storage = self.settings["storage."] or None
        if not DeltaTable.is_deltatable(self.settings["path"], storage_options=storage):
            return -1
        table = DeltaTable(self.settings["path"], storage_options=storage)
        version = table.transaction_version(app_id)
        return -1 if version is None else version

    def _compact(self, batch_id: int) -> None:
        from deltalake import DeltaTable  # noqa: PLC0415

        every = self.settings["compact.every.batches"]
        if every and batch_id % every == every - 1:
            table = DeltaTable(
                self.settings["path"], storage_options=self.settings["storage."] or None
            )
            table.optimize.compact(target_size=COMPACTED_BYTES)
