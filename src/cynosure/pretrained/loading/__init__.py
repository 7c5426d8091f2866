"""What can be read: folders, hub ids, picture files; and whether it fits in memory."""
