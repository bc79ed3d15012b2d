"""Alembic's entry point. `arena.store.database` hands in the connection, and the transaction that
is open on it.
"""

from alembic import context

from arena.store.schema import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=context.config.attributes["version_table"],
    render_as_batch=True,
)
context.run_migrations()
