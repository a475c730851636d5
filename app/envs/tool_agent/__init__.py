"""Work through tools on simulated services over many turns."""
