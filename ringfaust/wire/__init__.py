"""What it looks like in bytes: records in and out, control and replies, stored rows. Pure."""
