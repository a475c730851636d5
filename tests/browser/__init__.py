"""Pages in the system's Chromium. A package, so that the tests share one."""
