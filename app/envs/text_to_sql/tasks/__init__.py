"""Questions about small databases: what stands in them, what is asked, what a wrong query does, and how one is run."""
