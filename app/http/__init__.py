"""HTTP: `api` for programs, `compat` for other trainers, `viewer` for people; `web` is what they share."""
