"""The page that shows timelines in a browser: its frame, its style and its script."""
