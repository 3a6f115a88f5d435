"""emails: business e-mails, whose people, companies, dates and amounts an inversion may leak.

Of the hub: snoop2head/enron_aeslc_emails, or any set. Of a path: a table, an mbox or a tree of mails.
"""

SOURCES = ("synthetic", "hub", "path")
CHUNKED = True  # rows may have `chunk` and `document`
