"""The pages that people read: the report, the audit's page, tables and pictures.

No training stage depends on them.
"""
