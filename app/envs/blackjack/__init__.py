"""Play a hand of blackjack over several turns."""
