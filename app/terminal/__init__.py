"""What all commands share: where they print, and the client with which they ask a running gateway."""
