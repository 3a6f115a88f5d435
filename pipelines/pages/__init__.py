"""What people read: tables, pictures, the report and the audit's page. No stage that trains depends on it."""
