"""The doors: `api` for programs, `compat` as other services speak, `viewer` for people; `web` is what they share."""
