"""Django signals for what happens in a worker, one for each log event, with the same data.

Sent from worker threads by `log.EventLog`, which is the sender, with `event` (its name), `exception` (None where there
is none) and the event's data as keyword arguments. A receiver that raises is logged by Django and changes nothing.
"""

from __future__ import annotations

from django.dispatch import Signal

polling_for_jobs = Signal()
handling_job = Signal()
job_finished = Signal()
job_interrupted = Signal()
handle_job_exception = Signal()
handle_job_exception_with_interrupt = Signal()
time_limit_ignored = Signal()
lease_lost = Signal()
retrying = Signal()
not_retrying = Signal()
on_commit_exception = Signal()
retry_strategy_error = Signal()
failed_job_callback_error = Signal()
archived_job_replaced = Signal()
archived_job_not_replaced = Signal()
sql_transient_exception = Signal()
database_is_back = Signal()
job_worker_error = Signal()
worker_interrupted = Signal()
queue_worker_shutdown_error = Signal()
shutting_down = Signal()
completed_shutdown = Signal()
already_shut_down = Signal()
interrupted_while_shutting_down = Signal()
# In the supervisor, and running_job in its worker processes:
worker_process_started = Signal()
worker_process_not_started = Signal()
worker_process_ended = Signal()
worker_process_died = Signal()
replacement_failed = Signal()
replacement_refused = Signal()
worker_process_hangs = Signal()
crash_not_counted = Signal()
crashed_while_settling = Signal()
heartbeat_file_error = Signal()
heartbeat_file_shared = Signal()
running_job = Signal()
archived_jobs_pruned = Signal()
retention_error = Signal()
