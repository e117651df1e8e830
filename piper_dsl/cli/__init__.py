"""The command line: one file a command. What it does is in the packages; here it is called and shown."""
