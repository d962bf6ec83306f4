"""Celery as its documentation sets it up beside Django, with files for a broker: no server of theirs is needed."""

from __future__ import annotations

import os

from celery import Celery

messages = os.environ["MESSAGES"]
app = Celery("comparison")
app.conf.update(
    broker_url="filesystem://",
    broker_transport_options={
        "data_folder_in": f"{messages}/queues",
        "data_folder_out": f"{messages}/queues",
        "control_folder": f"{messages}/control",
    },
    result_backend=f"file://{messages}/results",
)
app.autodiscover_tasks()
