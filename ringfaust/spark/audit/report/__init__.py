"""The report of an audit: an HTML page with charts, see `page.write_report`."""
