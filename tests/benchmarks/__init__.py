"""How fast the queue is beside PostgreSQL's own client and bare psycopg: `python -m tests.benchmarks --help`."""
