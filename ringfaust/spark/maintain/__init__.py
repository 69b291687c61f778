"""Maintenance of the lake, outside its streams: retention, clustering and vacuum."""
