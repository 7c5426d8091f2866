"""Pictures and pages; nothing above this stage draws."""
