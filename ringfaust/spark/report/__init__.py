"""The report of an audit: a page with charts, see `page.write_report`."""
